// The gRPC client of Node against a model that never answers: see deadlines.py.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.CLIENTS_NODE_HOME}/`);
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address, descriptors, ...deadlines] = process.argv.slice(2);
const split = deadlines.indexOf("--");
const waitedFor = deadlines.slice(0, split).map(Number);
const readFrom = deadlines.slice(split + 1).map(Number);
// Below it the answer may be late, but is one of the two.
const leastMs = 1000;
const tries = 3;

const definition = loader.loadFileDescriptorSetFromBuffer(require("node:fs").readFileSync(descriptors), { longs: Number });
const { RecoveryService } = grpc.loadPackageDefinition(definition).relight.v1;
const client = new RecoveryService(address, grpc.credentials.createInsecure());
const invocation = {
  operation: "executor",
  model: { messages: [{ role: "ROLE_USER", parts: [{ text: { text: "Why?" } }] }] },
};

function invoke(deadlineMs) {
  return new Promise((resolve) => {
    const began = performance.now();
    client.invokeWithRecovery({ invocation }, { deadline: Date.now() + deadlineMs }, (error, response) => {
      const got = error ? grpc.status[error.code] : response.failure ? "failure" : "completion";
      resolve({ got, tookMs: performance.now() - began });
    });
  });
}

async function waited(deadlineMs) {
  let got;
  let tookMs;
  for (let tried = 0; tried < tries; tried++) {
    ({ got, tookMs } = await invoke(deadlineMs));
    if (got === "failure") return { deadlineMs, got, right: tookMs >= 0.7 * deadlineMs };
    if (deadlineMs < leastMs && got === "DEADLINE_EXCEEDED") return { deadlineMs, got, right: true };
  }
  return { deadlineMs, got, right: false };
}

function read(deadlineMs) {
  return new Promise((resolve, reject) => {
    const began = Date.now();
    const stream = client.streamWithRecovery({ invocation }, { deadline: began + deadlineMs });
    stream.on("error", (error) => error.code === grpc.status.CANCELLED || reject(error));
    stream.once("data", ({ event }) => {
      stream.cancel();
      const { seconds, nanos } = event.accepted.deadline;
      const endsMs = Math.round(1000 * seconds + nanos / 1e6 - began);
      const right = 0.9 * deadlineMs < endsMs && endsMs < deadlineMs;
      resolve({ deadlineMs, got: `ends after ${endsMs} ms`, right });
    });
  });
}

await new Promise((resolve, reject) => client.waitForReady(Date.now() + 10_000, (error) => (error ? reject(error) : resolve())));
const results = await Promise.all(waitedFor.map(waited));
for (const deadlineMs of readFrom) results.push(await read(deadlineMs));
client.close();
for (const { deadlineMs, got, right } of results) {
  console.log(`node: deadline ${deadlineMs} ms: ${got}${right ? "" : "  WRONG"}`);
}
if (!results.every(({ right }) => right)) {
  console.error("node: FAILED");
  process.exit(1);
}
console.log(`node: grpc-js ${require("@grpc/grpc-js/package.json").version}: all good`);
