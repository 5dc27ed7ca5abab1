package dev.relight.client;

import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.ListValue;
import com.google.protobuf.NullValue;
import com.google.protobuf.Struct;
import com.google.protobuf.Value;
import com.google.protobuf.util.JsonFormat;
import dev.relight.v1.Failure;
import dev.relight.v1.RecoveryEvent;
import dev.relight.v1.RecoveryEventFilter;
import dev.relight.v1.ToolCallPart;
import io.grpc.Status;
import io.grpc.TlsChannelCredentials;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** Runs the calls of the specification with this package: one call as JSON on each line in, what its caller held out. */
public final class Driver {
  private final Struct call;
  private final Struct.Builder held = Struct.newBuilder();

  private Driver(Struct call) {
    this.call = call;
  }

  public static void main(String[] arguments) throws IOException {
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var results = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      Struct job = parsed(line);
      Driver driver = new Driver(job.getFieldsOrThrow("call").getStructValue());
      driver.run(job.getFieldsOrThrow("target").getStringValue());
      results.println(JsonFormat.printer().omittingInsignificantWhitespace().print(driver.held));
    }
  }

  private static Struct parsed(String line) throws InvalidProtocolBufferException {
    Struct.Builder job = Struct.newBuilder();
    JsonFormat.parser().merge(line, job);
    return job.build();
  }

  private void run(String target) throws IOException {
    var reconnect = new Reconnect(has("attempts") ? number("attempts") : 12, Duration.ofMillis(50), Duration.ofSeconds(2));
    var builder = RelightClient.builder(target).reconnect(reconnect);
    if (has("api_key")) {
      builder.apiKey(text("api_key"));
    }
    if (!text("tls").isEmpty()) {
      var authority = new ByteArrayInputStream(text("tls").getBytes(StandardCharsets.UTF_8));
      builder.tls(TlsChannelCredentials.newBuilder().trustManager(authority).build());
    }
    try (RelightClient client = builder.build()) {
      switch (text("method")) {
        case "stream" -> stream(client);
        case "watch" -> watch(client);
        case "distinct" -> distinct(client);
        case "call_tool" -> callTool(client);
        default -> ended(flag("return_failure") ? client.tryInvoke(asked()) : client.invoke(asked()));
      }
    } catch (FailureException error) {
      endedWithFailure(error.failure(), true);
    } catch (StatusException error) {
      if (has("cancel_after") && error.code() == Status.Code.CANCELLED) {
        hold("ended", "cancelled");
      } else {
        hold("ended", "status");
        hold("status", list(error.code().name(), error.reason()));
      }
    } catch (ProtocolException error) {
      hold("ended", "protocol");
    }
  }

  private Call asked() {
    return with(Call.of(text("prompt")));
  }

  private Call with(Call plain) {
    Call asked = plain.route(text("route")).requestId(text("request_id"));
    asked = has("timeout_ms") ? asked.timeout(Duration.ofMillis(number("timeout_ms"))) : asked;
    return flag("return_failure") ? asked.returnFailure() : asked;
  }

  private void callTool(RelightClient client) throws InvalidProtocolBufferException {
    Struct tool = call.getFieldsOrThrow("tool").getStructValue();
    String arguments = JsonFormat.printer().print(tool.getFieldsOrThrow("arguments"));
    String id = textOf(tool, "call_id");
    String name = textOf(tool, "name");
    var wanted = ToolCallPart.newBuilder().setId(id).setName(name).setArgumentsJson(arguments).build();
    Call asked = id.isEmpty() ? Call.tool(name, arguments) : Call.tool(wanted);
    if (tool.containsFields("meta")) {
      asked = asked.meta(JsonFormat.printer().print(tool.getFieldsOrThrow("meta")));
    }
    asked = with(asked.goal(textOf(tool, "goal")));
    List<dev.relight.v1.Message> history = new ArrayList<>();
    ToolOutcome outcome;
    try {
      outcome = flag("return_failure") ? client.tryCallTool(asked) : client.callTool(asked);
    } catch (FailureException error) {
      error.applyTo(history);
      endedWithFailure(error.failure(), true);
      hold("history", shown(history));
      return;
    }
    if (outcome instanceof Outcome.Failed failed) {
      failed.applyTo(history);
      endedWithFailure(failed.failure(), false);
    } else if (outcome instanceof ToolOutcome.Result result) {
      result.applyTo(history);
      hold("ended", "result");
      hold("text", result.text());
      hold("target", result.target());
      var structured = Value.newBuilder().setNullValue(NullValue.NULL_VALUE);
      if (result.output().hasStructuredJson()) {
        JsonFormat.parser().merge(result.output().getStructuredJson(), structured.clear());
      }
      hold("structured", structured.build());
    }
    hold("history", shown(history));
  }

  private static String textOf(Struct object, String key) {
    return object.getFieldsOrDefault(key, Value.getDefaultInstance()).getStringValue();
  }

  private static Value shown(List<dev.relight.v1.Message> history) {
    return list(history.stream().map(message -> list(message.getRole().name(), textOf(message))).toList());
  }

  private void stream(RelightClient client) throws InvalidProtocolBufferException {
    List<Value> items = new ArrayList<>();
    try {
      if (flag("live")) {
        streamed(client, client.streamLive(asked()), items);
      } else {
        streamed(client, client.stream(asked()), items);
      }
    } finally {
      hold("items", list(items));
    }
  }

  private void streamed(RelightClient client, AnswerStream<?> stream, List<Value> items)
      throws InvalidProtocolBufferException {
    try (stream) {
      read(stream, items, has("take") ? number("take") : has("detach") ? number("detach") : -1);
      if (has("take")) {
        hold("ended", "left");
        return;
      }
      if (!has("detach")) {
        ended(stream.outcome());
        return;
      }
      try (var resumed = client.resumeLive(stream.detach())) {
        read(resumed, items, -1);
        ended(resumed.outcome());
      }
    }
  }

  private void read(AnswerStream<?> stream, List<Value> items, int limit) {
    while (items.size() != limit && stream.hasNext()) {
      Object item = stream.next();
      if (item instanceof Change.Rewind rewind) {
        items.add(list("rewind", rewind.kept()));
      } else {
        items.add(list("text", item instanceof Change.Text text ? text.text() : (String) item));
      }
      if (has("cancel_after") && items.size() == number("cancel_after")) {
        new Thread(stream::close).start();
      }
    }
  }

  private void watch(RelightClient client) {
    List<Value> events = new ArrayList<>();
    var all = RecoveryEventFilter.getDefaultInstance();
    Watch feed = flag("from_start") ? client.watchFromStart(all) : has("after") ? client.watchAfter(all, text("after")) : client.watch(all);
    try (feed) {
      for (RecoveryEvent event : feed) {
        String shown = event.hasMissed() ? "missed " + event.getMissed().getCount() : event.getDisplayText();
        events.add(list(event.getCursor(), shown));
        hold("cursor", feed.cursor());
        if (events.size() == number("take")) {
          break;
        }
      }
      hold("ended", "left");
    } finally {
      hold("events", list(events));
    }
  }

  /** Calls until so many different answers came. */
  private void distinct(RelightClient client) {
    Set<String> texts = new LinkedHashSet<>();
    for (int count = 0; count < number("most") && texts.size() < number("distinct"); count++) {
      texts.add(client.invoke(Call.of(text("prompt"))).text());
    }
    hold("texts", list(texts.toArray(new String[0])));
  }

  private void ended(Outcome outcome) throws InvalidProtocolBufferException {
    if (outcome instanceof Outcome.Failed failed) {
      endedWithFailure(failed.failure(), false);
      return;
    }
    Outcome.Answer answer = (Outcome.Answer) outcome;
    var history = new ArrayList<>(List.of(Call.user(text("prompt"))));
    answer.applyTo(history);
    var calls = answer.toolCalls().stream().map(tool -> list(tool.getId(), tool.getName(), tool.getArgumentsJson()));
    hold("ended", "answer");
    hold("text", answer.text());
    hold("target", answer.target());
    hold("tool_calls", list(calls.toList()));
    hold("history", shown(history));
    var around = Value.newBuilder();
    JsonFormat.parser().merge(answer.aroundJson().isEmpty() ? "{}" : answer.aroundJson(), around);
    hold("around", around.build());
  }

  private static String textOf(dev.relight.v1.Message message) {
    StringBuilder text = new StringBuilder();
    for (var part : message.getPartsList()) {
      text.append(part.getText().getText()).append(part.getToolCall().getName());
      part.getToolResult().getContentList().forEach(piece -> text.append(piece.getText().getText()));
    }
    return text.toString();
  }

  private void endedWithFailure(Failure failure, boolean thrown) {
    hold("ended", "failure");
    hold("failure", list(failure.getFailureClass().name(), failure.getUserMessage()));
    hold("thrown", Value.newBuilder().setBoolValue(thrown).build());
  }

  private void hold(String key, String text) {
    hold(key, Value.newBuilder().setStringValue(text).build());
  }

  private void hold(String key, Value value) {
    held.putFields(key, value);
  }

  private static Value list(String... texts) {
    return list(Arrays.stream(texts).map(text -> Value.newBuilder().setStringValue(text).build()).toList());
  }

  private static Value list(List<Value> values) {
    return Value.newBuilder().setListValue(ListValue.newBuilder().addAllValues(values)).build();
  }

  private boolean has(String key) {
    return call.containsFields(key);
  }

  private String text(String key) {
    return call.getFieldsOrDefault(key, Value.getDefaultInstance()).getStringValue();
  }

  private boolean flag(String key) {
    return call.getFieldsOrDefault(key, Value.getDefaultInstance()).getBoolValue();
  }

  private int number(String key) {
    return (int) call.getFieldsOrThrow(key).getNumberValue();
  }
}
