package dev.relight.client;

import dev.relight.v1.Invocation;
import dev.relight.v1.Message;
import dev.relight.v1.ModelCall;
import dev.relight.v1.Overrides;
import dev.relight.v1.Part;
import dev.relight.v1.Role;
import dev.relight.v1.TextPart;
import dev.relight.v1.ToolCall;
import dev.relight.v1.ToolCallPart;
import java.time.Duration;
import java.util.List;
import java.util.UUID;

/** What is invoked, and how. Nothing changes a call that was made; each method returns another one. */
public final class Call {
  private final Invocation invocation;
  private final Duration timeout;
  private final boolean resumable;
  private final boolean throwFailure;

  private Call(Invocation invocation, Duration timeout, boolean resumable, boolean throwFailure) {
    this.invocation = invocation;
    this.timeout = timeout;
    this.resumable = resumable;
    this.throwFailure = throwFailure;
  }

  /** A call with one user message. */
  public static Call of(String prompt) {
    return of(List.of(user(prompt)));
  }

  /** A call with a conversation. */
  public static Call of(List<Message> messages) {
    return of(ModelCall.newBuilder().addAllMessages(messages).build());
  }

  /** A call with tools, sampling parameters and all that a model takes. */
  public static Call of(ModelCall model) {
    return new Call(Invocation.newBuilder().setModel(model).build(), null, true, true);
  }

  /**
   * A call of a tool, for {@link RelightClient#callTool}.
   *
   * @param name the tool's name, or {@code server/tool} if several servers have it
   * @param argumentsJson the arguments, JSON text of an object; empty for none
   */
  public static Call tool(String name, String argumentsJson) {
    return tool(ToolCall.newBuilder().setName(name).setArgumentsJson(argumentsJson).build());
  }

  /** A call of a tool that a model wants, with its arguments and its id. */
  public static Call tool(ToolCallPart wanted) {
    var tool = ToolCall.newBuilder().setName(wanted.getName()).setArgumentsJson(wanted.getArgumentsJson());
    return tool(tool.setCallId(wanted.getId()).build());
  }

  /** A call of a tool with a goal, side effects and all that the contract has. */
  public static Call tool(ToolCall tool) {
    return new Call(Invocation.newBuilder().setTool(tool).build(), null, true, true);
  }

  /** A message of the user, or of the agent in its place. */
  public static Message user(String text) {
    return message(Role.ROLE_USER, text);
  }

  /** The operator's instructions. */
  public static Message system(String text) {
    return message(Role.ROLE_SYSTEM, text);
  }

  private static Message message(Role role, String text) {
    Part part = Part.newBuilder().setText(TextPart.newBuilder().setText(text)).build();
    return Message.newBuilder().setRole(role).addParts(part).build();
  }

  /** The same call of a tool, for this purpose in a few words. */
  public Call goal(String goal) {
    return with(invocation.toBuilder().setTool(invocation.getTool().toBuilder().setGoal(goal)));
  }

  /** The same call of a tool, whose MCP server gets this as {@code _meta}, JSON text of an object. */
  public Call meta(String metaJson) {
    return with(invocation.toBuilder().setTool(invocation.getTool().toBuilder().setMetaJson(metaJson)));
  }

  /** The same by this route. */
  public Call route(String route) {
    return with(invocation.toBuilder().setRoute(route));
  }

  /** The same as this operation. */
  public Call operation(String operation) {
    return with(invocation.toBuilder().setOperation(operation));
  }

  /** The same on this thread, whose messages Relight keeps. */
  public Call thread(String threadId) {
    return with(invocation.toBuilder().setThreadId(threadId));
  }

  /** The same with one more label. */
  public Call label(String key, String value) {
    return with(invocation.toBuilder().putLabels(key, value));
  }

  /** The same with other policies than the route's. */
  public Call overrides(Overrides overrides) {
    return with(invocation.toBuilder().setOverrides(overrides));
  }

  /** The same with the caller's own id; without one, an id is made for each invocation. */
  public Call requestId(String requestId) {
    return with(invocation.toBuilder().setRequestId(requestId));
  }

  /** The same within this time, over all connections. */
  public Call timeout(Duration timeout) {
    return new Call(invocation, timeout, resumable, throwFailure);
  }

  /** The same, cancelled where the connection of its stream is lost. */
  public Call notResumable() {
    return new Call(invocation, timeout, false, throwFailure);
  }

  /** The same, with a stream that ends without an exception where the invocation failed. */
  public Call returnFailure() {
    return new Call(invocation, timeout, resumable, false);
  }

  Duration timeout() {
    return timeout;
  }

  boolean isResumable() {
    return resumable;
  }

  boolean throwsFailure() {
    return throwFailure;
  }

  Invocation invocation() {
    boolean named = !invocation.getRequestId().isEmpty();
    return named ? invocation : invocation.toBuilder().setRequestId(UUID.randomUUID().toString()).build();
  }

  private Call with(Invocation.Builder changed) {
    return new Call(changed.build(), timeout, resumable, throwFailure);
  }
}
