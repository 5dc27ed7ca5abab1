package dev.relight.client;

/** Where another process can go on with an invocation: {@link RelightClient#resume}. */
public record ResumePoint(String token, String requestId) {}
