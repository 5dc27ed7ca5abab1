//! Documented names of dying machines: exit codes, signals, Kubernetes, GPUs, distributed engines.

use crate::{
    domain::failure::FailureClass as C,
    policy::classify::rule::{Rule, numbered, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // A shell's 127 and 126: no such program, none that runs. 130: a person's Ctrl-C.
    rule(
        "exit.not_runnable",
        C::Configuration,
        numbered!(
            "& {exit code|exit status|exited with|exited code|exit}": 126, 127;
            also "executable file not found in"
        ),
    ),
    rule(
        "exit.interrupted",
        C::Cancelled,
        numbered!("& {exit code|exit status|exited with|exited code|exit}": 130, 3221225786; also "sigint"),
    ),
    rule(
        "exit.killed",
        C::Crash,
        numbered!(
            "& {exit code|exit status|exited with|exited code|exit|terminated}":
                132, 134, 135, 136, 137, 139, 1073741819, 1073740791, 1073741571, 3221225477, 3221225725, 3221226505, 3221226356;
            also "{sigfpe|sigtrap|sigsys|sigkill|sigsegv|sigabrt|sigbus|sigill}"
        ),
    ),
    // Kubernetes and containers.
    rule(
        "k8s.image",
        C::Configuration,
        &[
            "image pull back off",
            "err image {pull|never pull}",
            "{failed to pull image|manifest unknown}",
            "invalid image name",
            "create container {config |}error",
            "image inspect error",
        ],
    ),
    rule(
        "k8s.crash",
        C::Crash,
        &[
            "crash loop back off",
            "{restarting failed container|liveness probe failed|container will be restarted}",
            "oom killed",
            "=evicted",
            "run container error",
            "container cannot run",
            "backoff limit exceeded",
            "=start error",
        ],
    ),
    rule(
        "k8s.scheduling",
        C::Overloaded,
        &["=failed scheduling", "=unschedulable", "nodes are available .. insufficient"],
    ),
    // Drivers and devices that do not fit are set up wrong; the rest of their errors end the process.
    rule(
        "gpu.setup",
        C::Configuration,
        &[
            "cuda error insufficient driver",
            "cuda driver version is insufficient",
            "hip error no binary for gpu",
            "no kernel image is available",
            "no cuda capable device",
            "compute {cap|capability} @transport",
            "{no cuda gpus are available|initialize nvml|nvml driver|could not select device driver}",
            "found no nvidia driver",
            "torch not compiled with cuda",
            "runtime env setup error",
        ],
    ),
    rule(
        "gpu.dead",
        C::Crash,
        &[
            "{cudnn|cublas|cusolver|cufft|cusparse|curand} status*",
            "nccl {unhandled cuda|system|internal|remote|invalid usage} error",
            "nccl {unhandled cuda error|system error|internal error|remote error}",
            "hsa status error*",
            "vk error {out of device memory|out of host memory|device lost|initialization failed}",
            "error {out of device memory|device lost}",
            "dxgi error*",
            "{cl out of resources|cl mem object allocation failure}",
            "fallen off the bus",
            "{gpu is lost|memory access fault by gpu}",
            "nvrm xid",
            "watchdog caught collective operation timeout",
            "dist backend error",
            "uncorrectable {ecc|nvlink} error",
        ],
    ),
    // Engines of many processes.
    rule(
        "engine.dead",
        C::Crash,
        &[
            "engine {generate|dead} error",
            "{local raylet died|owner died|object lost|actor died|actor unavailable|worker crashed|node died|ray actor} error",
            "child failed error",
            "stack overflow error",
            "{worker|process} was terminated by the operating system",
            "err ipc channel closed",
            "{enomem|errno 12|os error 12}",
        ],
    ),
    rule(
        "engine.busy",
        C::Overloaded,
        &[
            "back pressure error",
            "{deployment unavailable|actor unschedulable|task unschedulable} error",
            "pending calls limit exceeded",
            "exceeds maximum queue size",
            "{rejected execution|bulkhead rejected|broken circuit|call not permitted} exception",
        ],
    ),
];
