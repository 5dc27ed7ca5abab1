package dev.relight.client;

import com.google.protobuf.ByteString;
import dev.relight.v1.BlockDelta;
import dev.relight.v1.BlockKind;
import dev.relight.v1.BlockStart;
import dev.relight.v1.BlockStop;
import dev.relight.v1.KeptBlock;
import dev.relight.v1.Rewind;
import dev.relight.v1.Snapshot;
import dev.relight.v1.StreamCursor;
import dev.relight.v1.StreamEvent;
import dev.relight.v1.Terminal;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.List;
import java.util.TreeMap;
import java.util.stream.Collectors;

/**
 * Folds the events of a stream into what the caller holds, and checks every one of them. It outlives connections.
 *
 * <p>The rules are those at the head of `stream.proto`. What does not fit is a {@link Misfit} and is never shown.
 */
final class Fold {
  /** A piece of the answer. */
  record Block(BlockStart start, ByteString content, boolean stopped, boolean committed) {
    String text() {
      return content.toStringUtf8();
    }
  }

  private TreeMap<Integer, Block> blocks = new TreeMap<>();
  private String invocationId = "";
  private StreamCursor cursor;
  private Terminal terminal;

  String invocationId() {
    return invocationId;
  }

  /** The last event; null before the first. */
  StreamCursor cursor() {
    return cursor;
  }

  /** The outcome; null before the end. */
  Terminal terminal() {
    return terminal;
  }

  /** Folds one event. True when it was new and numbered, or a snapshot. */
  boolean apply(StreamEvent event) throws Misfit {
    if (!invocationId.isEmpty() && !invocationId.equals(event.getInvocationId())) {
      throw new Misfit("an event of another invocation");
    }
    invocationId = event.getInvocationId();
    if (event.hasAccepted() || event.hasHeartbeat()) {
      return false;
    }
    if (event.hasSnapshot()) {
      restore(event.getSnapshot());
      cursor = event.getSeq() == 0 ? null : place(event);
      terminal = null;
      return true;
    }
    if (!isNext(event)) {
      return false;
    }
    switch (event.getBodyCase()) {
      case BLOCK_START -> start(event.getBlockStart());
      case BLOCK_DELTA -> append(event.getBlockDelta());
      case BLOCK_STOP -> stop(event.getBlockStop());
      case REWIND -> rewind(event.getRewind());
      case TERMINAL -> {
        if (!event.getTerminal().getResultHash().equals(hash(blocks))) {
          throw new Misfit("the hash of the result differs");
        }
        terminal = event.getTerminal();
      }
      default -> {
        // It tells of the way to the answer, and changes nothing that is held.
      }
    }
    cursor = place(event);
    return true;
  }

  List<Block> ofKind(BlockKind kind) {
    return blocks.values().stream().filter(block -> block.start().getKind() == kind).toList();
  }

  /** Id of the last block of text; 0 where there is none. */
  int lastText() {
    var texts = ofKind(BlockKind.BLOCK_KIND_TEXT);
    return texts.isEmpty() ? 0 : texts.get(texts.size() - 1).start().getBlockId();
  }

  /** All text of the answer, as `Completion.text` has it. */
  String text() {
    return ofKind(BlockKind.BLOCK_KIND_TEXT).stream().map(Block::text).collect(Collectors.joining("\n"));
  }

  private static StreamCursor place(StreamEvent event) {
    return StreamCursor.newBuilder().setEpoch(event.getEpoch()).setSeq(event.getSeq()).build();
  }

  private boolean isNext(StreamEvent event) throws Misfit {
    long epoch = cursor == null ? event.getEpoch() : cursor.getEpoch();
    long last = cursor == null ? 0 : cursor.getSeq();
    if (event.getEpoch() < epoch) {
      throw new Misfit("an event of epoch " + event.getEpoch() + " after one of epoch " + epoch);
    }
    if (event.getEpoch() == epoch && event.getSeq() <= last) {
      return false;
    }
    if (event.getSeq() != last + 1) {
      throw new Misfit("event " + event.getSeq() + " after event " + last);
    }
    if (terminal != null) {
      throw new Misfit("an event after the Terminal");
    }
    return true;
  }

  private Block open(int id) throws Misfit {
    Block block = blocks.get(id);
    if (block == null || block.stopped()) {
      throw new Misfit("block " + id + " is not open");
    }
    return block;
  }

  private void start(BlockStart start) throws Misfit {
    if (blocks.putIfAbsent(start.getBlockId(), new Block(start, ByteString.EMPTY, false, false)) != null) {
      throw new Misfit("block " + start.getBlockId() + " begins twice");
    }
  }

  private void append(BlockDelta delta) throws Misfit {
    Block block = open(delta.getBlockId());
    if (block.content().size() != delta.getStartOffsetBytes()) {
      throw new Misfit("a delta at " + delta.getStartOffsetBytes() + " where " + block.content().size() + " bytes are held");
    }
    ByteString content = block.content().concat(delta.getTextBytes());
    blocks.put(delta.getBlockId(), new Block(block.start(), content, false, false));
  }

  private void stop(BlockStop stop) throws Misfit {
    Block block = open(stop.getBlockId());
    if (block.content().size() != stop.getLengthBytes() || !sha256(block.content()).equals(stop.getHash())) {
      throw new Misfit("block " + stop.getBlockId() + " is not what was sent");
    }
    boolean whole = stop.hasArgumentsJson() && stop.getArgumentsJson().equals(block.text());
    if (stop.getCommitted() && !whole) {
      throw new Misfit("the arguments of block " + stop.getBlockId() + " are not what was sent");
    }
    blocks.put(stop.getBlockId(), new Block(block.start(), block.content(), true, stop.getCommitted()));
  }

  private void rewind(Rewind rewind) throws Misfit {
    TreeMap<Integer, Block> kept = new TreeMap<>();
    for (KeptBlock keep : rewind.getKeepList()) {
      Block block = blocks.get(keep.getBlockId());
      if (block == null || block.content().size() < keep.getLengthBytes()) {
        throw new Misfit("block " + keep.getBlockId() + " is to be kept and is not held");
      }
      if (keep.getLengthBytes() < block.content().size()) {
        block = new Block(block.start(), block.content().substring(0, (int) keep.getLengthBytes()), false, false);
      }
      kept.put(keep.getBlockId(), block);
    }
    if (!hash(kept).equals(rewind.getHash())) {
      throw new Misfit("the hash of what a rewind keeps differs");
    }
    blocks = kept;
  }

  private void restore(Snapshot snapshot) throws Misfit {
    Fold fresh = new Fold();
    for (var held : snapshot.getBlocksList()) {
      fresh.start(held.getStart());
      fresh.blocks.put(held.getStart().getBlockId(), new Block(held.getStart(), held.getTextBytes(), false, false));
      if (held.hasStop()) {
        fresh.stop(held.getStop());
      }
    }
    if (!hash(fresh.blocks).equals(snapshot.getHash())) {
      throw new Misfit("the hash of a snapshot differs");
    }
    blocks = fresh.blocks;
  }

  private static ByteString hash(TreeMap<Integer, Block> blocks) {
    MessageDigest whole = digest();
    blocks.forEach(
        (id, block) -> {
          ByteBuffer head = ByteBuffer.allocate(16);
          head.putInt(id).putInt(block.start().getKindValue()).putLong(block.content().size());
          whole.update(head.array());
          whole.update(sha256(block.content()).toByteArray());
        });
    return ByteString.copyFrom(whole.digest());
  }

  private static ByteString sha256(ByteString content) {
    return ByteString.copyFrom(digest().digest(content.toByteArray()));
  }

  private static MessageDigest digest() {
    try {
      return MessageDigest.getInstance("SHA-256");
    } catch (NoSuchAlgorithmException impossible) {
      throw new IllegalStateException("every Java has SHA-256", impossible);
    }
  }
}
