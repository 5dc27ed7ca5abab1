// The gRPC client of Java against a model that never answers: see ../deadlines.py.

import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.Descriptors.MethodDescriptor;
import com.google.protobuf.Descriptors.ServiceDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCalls;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

public final class Deadlines {
  // Below it the answer may be late, but is one of the two.
  private static final long LEAST_MS = 1000;
  private static final int TRIES = 3;

  private record Result(long deadlineMs, String got, boolean right) {}

  private final ManagedChannel channel;
  private final ServiceDescriptor service;

  private Deadlines(ManagedChannel channel, ServiceDescriptor service) {
    this.channel = channel;
    this.service = service;
  }

  private static ServiceDescriptor service(Path descriptors) throws Exception {
    Map<String, FileDescriptor> files = new HashMap<>();
    for (FileDescriptorProto file : FileDescriptorSet.parseFrom(Files.readAllBytes(descriptors)).getFileList()) {
      FileDescriptor[] imports = file.getDependencyList().stream().map(files::get).toArray(FileDescriptor[]::new);
      files.put(file.getName(), FileDescriptor.buildFrom(file, imports));
    }
    return files.get("relight/v1/recovery_service.proto").findServiceByName("RecoveryService");
  }

  private static Object member(Message message, String name) {
    return message.getField(message.getDescriptorForType().findFieldByName(name));
  }

  private static DynamicMessage.Builder with(Descriptor type, String name, Object value) {
    return DynamicMessage.newBuilder(type).setField(type.findFieldByName(name), value);
  }

  private static Descriptor typeOf(Descriptor type, String name) {
    return type.findFieldByName(name).getMessageType();
  }

  private static DynamicMessage request(Descriptor type) {
    Descriptor invocation = typeOf(type, "invocation");
    Descriptor model = typeOf(invocation, "model");
    Descriptor message = typeOf(model, "messages");
    Descriptor part = typeOf(message, "parts");
    Descriptor text = typeOf(part, "text");
    DynamicMessage.Builder asked = DynamicMessage.newBuilder(message);
    asked.setField(message.findFieldByName("role"),
        message.findFieldByName("role").getEnumType().findValueByName("ROLE_USER"));
    asked.addRepeatedField(message.findFieldByName("parts"),
        with(part, "text", with(text, "text", "Why?").build()).build());
    DynamicMessage.Builder call = DynamicMessage.newBuilder(model);
    call.addRepeatedField(model.findFieldByName("messages"), asked.build());
    DynamicMessage.Builder made = with(invocation, "operation", "executor");
    made.setField(invocation.findFieldByName("model"), call.build());
    return with(type, "invocation", made.build()).build();
  }

  private static io.grpc.MethodDescriptor<DynamicMessage, DynamicMessage> method(
      MethodDescriptor method, io.grpc.MethodDescriptor.MethodType type) {
    return io.grpc.MethodDescriptor.<DynamicMessage, DynamicMessage>newBuilder()
        .setType(type)
        .setFullMethodName("relight.v1.RecoveryService/" + method.getName())
        .setRequestMarshaller(ProtoUtils.marshaller(DynamicMessage.getDefaultInstance(method.getInputType())))
        .setResponseMarshaller(ProtoUtils.marshaller(DynamicMessage.getDefaultInstance(method.getOutputType())))
        .build();
  }

  private static CallOptions within(long deadlineMs) {
    return CallOptions.DEFAULT.withDeadlineAfter(deadlineMs, TimeUnit.MILLISECONDS);
  }

  private Result waited(long deadlineMs) {
    MethodDescriptor invoke = service.findMethodByName("InvokeWithRecovery");
    String got = "";
    for (int tried = 0; tried < TRIES; tried++) {
      long began = System.nanoTime();
      try {
        DynamicMessage response = ClientCalls.blockingUnaryCall(channel,
            method(invoke, io.grpc.MethodDescriptor.MethodType.UNARY), within(deadlineMs),
            request(invoke.getInputType()));
        boolean failed = response.hasField(invoke.getOutputType().findFieldByName("failure"));
        long tookMs = (System.nanoTime() - began) / 1_000_000;
        return new Result(deadlineMs, failed ? "failure" : "completion", failed && tookMs >= 0.7 * deadlineMs);
      } catch (StatusRuntimeException refused) {
        got = refused.getStatus().getCode().name();
        if (deadlineMs < LEAST_MS && got.equals("DEADLINE_EXCEEDED")) {
          return new Result(deadlineMs, got, true);
        }
      }
    }
    return new Result(deadlineMs, got, false);
  }

  private Result read(long deadlineMs) {
    MethodDescriptor stream = service.findMethodByName("StreamWithRecovery");
    long began = System.currentTimeMillis();
    var context = io.grpc.Context.current().withCancellation();
    var before = context.attach();
    try {
      Message response = ClientCalls.blockingServerStreamingCall(channel,
          method(stream, io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING), within(deadlineMs),
          request(stream.getInputType())).next();
      Message accepted = (Message) member((Message) member(response, "event"), "accepted");
      Message deadline = (Message) member(accepted, "deadline");
      long endsMs = 1000 * (long) member(deadline, "seconds") + (int) member(deadline, "nanos") / 1_000_000 - began;
      boolean right = 0.9 * deadlineMs < endsMs && endsMs < deadlineMs;
      return new Result(deadlineMs, "ends after " + endsMs + " ms", right);
    } finally {
      context.detach(before);
      context.cancel(null);
    }
  }

  public static void main(String[] arguments) throws Exception {
    ManagedChannel channel = ManagedChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
    Deadlines client = new Deadlines(channel, service(Path.of(arguments[1])));
    client.read(10_000); // connects, and loads the classes
    List<String> deadlines = List.of(arguments).subList(2, arguments.length);
    int split = deadlines.indexOf("--");
    var threads = Executors.newFixedThreadPool(split);
    List<Future<Result>> calls = new ArrayList<>();
    for (String text : deadlines.subList(0, split)) {
      calls.add(threads.submit(() -> client.waited(Long.parseLong(text))));
    }
    List<Result> results = new ArrayList<>();
    for (Future<Result> call : calls) {
      results.add(call.get());
    }
    threads.shutdown();
    for (String text : deadlines.subList(split + 1, deadlines.size())) {
      results.add(client.read(Long.parseLong(text)));
    }
    channel.shutdownNow();
    boolean right = true;
    for (Result result : results) {
      right &= result.right();
      System.out.printf("java: deadline %d ms: %s%s%n", result.deadlineMs(), result.got(), result.right() ? "" : "  WRONG");
    }
    if (!right) {
      System.err.println("java: FAILED");
      System.exit(1);
    }
    System.out.println("java: grpc " + io.grpc.internal.GrpcUtil.getGrpcBuildVersion().getImplementationVersion() + ": all good");
  }
}
