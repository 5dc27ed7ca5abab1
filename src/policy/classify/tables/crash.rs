//! Dead processes, exhausted memory and broken accelerators: somebody has to restart it.

use crate::{
    domain::failure::FailureClass as C,
    policy::classify::rule::{Rule, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    rule("crash.start_timeout", C::Timeout, &["timed out waiting for .. {runner|server|model} .. {start|load|ready}"]),
    rule(
        "config.engine_start",
        C::Configuration,
        &[
            "{to serve at least one request|estimated maximum model length}",
            "try increasing gpu memory utilization",
            "no available memory for the cache blocks",
        ],
    ),
    rule(
        "overloaded.host_memory",
        C::Overloaded,
        &["requires more system memory .. than is available", "requires more {system |gpu |}{memory|vram}"],
    )
    .retry(false),
    rule(
        "crash.process",
        C::Crash,
        &[
            "{runner|server|worker|model|child|engine|claude|subprocess|backend|shard|agent|cli|inference} {process |}{has |was |}{terminated|died|crashed|exited|been killed|killed|dead|is dead}",
            "process {has |was |}{exited|terminated|died|crashed|killed|been killed} {with|unexpectedly|by|abnormally|before|prematurely|code|signal|exit|due|on|prior|on signal|}",
            "{process|worker|runner|engine|server|shard|child process|mcp server|container|pod} .. {exited|exit|terminated|died|crashed|killed} .. {code|signal|status|sigkill|sigterm|sigsegv|unexpectedly|oom*}",
            "exited with {code|status|signal|exit code|error code}",
            "{exit|return} {code|status} {137|139|134|143|9|-9|132|136}",
            "{failed to load|error loading|loading} .. model .. exit code",
            "exit status # & {runner|process|server}",
            "signal {killed|aborted|segmentation*|terminated|bus error|illegal instruction|abort|sigkill|sigsegv|sigabrt}",
            "{sigkill|sigsegv|sigabrt|sigbus|sigill}",
            "{core dumped|segmentation fault|segfault|stack overflow detected|access violation|illegal instruction|panicked at|fatal runtime error|bus error}",
            "{engine dead|engine is dead|engine has died|engine loop is not running|engine loop has died|background loop has errored|background loop is stopped|async engine dead*|dead error|engine core .. {encountered|died|dead|failed}|enginecore .. {encountered|died|dead|failed}}",
            "mq engine dead*",
            "{worker|workers|worker proc|engine core|parent process|executor} .. {died|dead|shutting down|exited|terminating|crashed}",
            "{shard|worker|model} {process was signaled|failed to start|cannot start|terminated|is dead}",
            "{cuda|hip|rocm|cublas|cudnn|nccl|metal|vulkan|ggml|gpu} {driver |internal |runtime |}{error|failure|kernel error*}",
            "{device side assert|illegal memory access|cuda kernel errors|cublas status*|unspecified launch failure|nccl error}",
            "{out of memory|oom killed|oom killer|out of memory error|oomkilled|oom kill|cannot allocate memory|failed to allocate memory|not enough memory|bad alloc|cudamalloc failed|insufficient memory|insufficient system memory|java heap space|heap out of memory|allocation failed javascript heap|memory error|out of gpu memory|torch out of memory*}",
            "{cudamalloc|failed to allocate|unable to allocate|could not allocate|cannot allocate} .. {buffer|memory|vram|bytes|kv cache}",
            "model has {crashed|unexpectedly stopped}",
            "model runner has unexpectedly stopped",
            "{model|server|runner|engine|process|worker} {has |was |}unexpectedly {stopped|exited|crashed|terminated|quit}",
            "unexpectedly {stopped|exited|crashed|terminated|quit|died}",
            "{engine|worker|executor|scheduler|runner|engine core} {process |worker |workers |core |}{initialization failed|failed to initialize|startup failed|failed to start|did not start|could not be started|cannot start|returned error|returned an error}",
            "task finished unexpectedly",
            "exit status @num:139",
            "exit status @num:137",
            "exit status @num:134",
            "{cudnn|cublas|nccl|hip} .. {error|status*|failure}",
            "{device lost|failed to boot|is not alive|no longer alive}",
            "{target page|target|page|browser|browser context|browser window|tab} {context or browser |}{has been |has |was |is |}{closed|crashed|disconnected|destroyed} @tool",
            "{target closed|page crashed|browser has disconnected|browser closed unexpectedly|session closed most likely the page}",
            "{has crashed|crash loop*|crashed unexpectedly|fatal signal|ggml assert|assertion failed in ggml}",
            "engine process failed",
            "killed by {a |}signal",
            "{server|service} .. restarting .. {crash*|oom*}",
            "server error transport error",
            "ray actor {died|error}",
            "{actor died error|actor unavailable error|worker crashed error|node died error}",
            "evicted .. memory",
            "broken pool process",
            "broken process pool",
        ],
    ),
];
