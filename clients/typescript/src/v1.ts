/** The messages of `relight.v1`, as generated. */
export * from "./gen/relight/v1/event_pb.js";
export * from "./gen/relight/v1/failure_pb.js";
export * from "./gen/relight/v1/injection_pb.js";
export * from "./gen/relight/v1/invocation_pb.js";
export * from "./gen/relight/v1/model_pb.js";
export * from "./gen/relight/v1/recovery_service_pb.js";
export * from "./gen/relight/v1/stream_pb.js";
export * from "./gen/relight/v1/target_pb.js";
export * from "./gen/relight/v1/tool_pb.js";
export * from "./gen/relight/v1/watch_pb.js";
