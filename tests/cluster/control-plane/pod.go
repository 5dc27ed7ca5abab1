// A pod: its process, started again when it ends, probed as its probes say, ended as Kubernetes ends it.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	probeWithin     = time.Second
	restartAtFirst  = time.Second
	restartAtLatest = 10 * time.Second
)

var errNoImage = errors.New("this node has no such image")

type pod struct {
	node   *node
	object *v1.Pod

	mu       sync.Mutex
	address  string
	process  *os.Process
	ready    bool
	restarts int32
	exited   *int32
	// Why it has not started.
	waits  string
	ending bool
	done   bool
}

func (p *pod) container() *v1.Container { return &p.object.Spec.Containers[0] }

// run starts the process, and again after each end, with longer and longer waits, until the pod is deleted or done.
func (p *pod) run(ctx context.Context) {
	name := string(p.object.UID)
	address, err := p.node.net.namespace(name)
	must(err)
	defer p.node.net.end(name)
	p.mu.Lock()
	p.address = address
	p.mu.Unlock()
	for wait := restartAtFirst; ; wait = min(2*wait, restartAtLatest) {
		code, err := p.once(ctx, name)
		if err != nil {
			// Such as a Secret that is not there yet.
			fmt.Println(p.object.Name, "cannot start:", err)
		}
		p.mu.Lock()
		p.process, p.ready = nil, false
		if errors.Is(err, errNoImage) {
			p.waits = "ErrImagePull"
		} else if err != nil {
			p.waits = "CreateContainerConfigError"
		}
		if err == nil || p.ending {
			p.exited = &code
		}
		again := p.object.Spec.RestartPolicy == v1.RestartPolicyAlways || err != nil
		p.done = p.ending || !again
		done := p.done
		if !done && err == nil {
			p.restarts++
		}
		p.mu.Unlock()
		if done {
			return
		}
		time.Sleep(wait)
	}
}

// once runs the process to its end.
func (p *pod) once(ctx context.Context, namespace string) (int32, error) {
	if p.container().Image != p.node.image {
		return 0, errNoImage
	}
	words, environment, err := p.command(ctx)
	if err != nil {
		return 0, err
	}
	command := exec.Command("ip", append([]string{"netns", "exec", namespace, p.node.binary}, words...)...)
	command.Env = environment
	log, err := os.OpenFile(filepath.Join(p.node.dir, p.object.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	p.mu.Lock()
	if p.ending {
		p.mu.Unlock()
		return 0, nil
	}
	err = command.Start()
	if err == nil {
		p.process = command.Process
	}
	p.mu.Unlock()
	if err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go p.probe(ctx, ended)
	_ = command.Wait()
	close(ended)
	return int32(command.ProcessState.ExitCode()), nil
}

// probe asks for readiness as the container's probe says: by gRPC, at its port, for its service.
func (p *pod) probe(ctx context.Context, ended <-chan struct{}) {
	asked := p.container().ReadinessProbe
	if asked == nil || asked.GRPC == nil {
		p.mu.Lock()
		p.ready = true
		p.mu.Unlock()
		return
	}
	every := time.Duration(max(asked.PeriodSeconds, 1)) * time.Second
	connection, err := grpc.NewClient(fmt.Sprintf("%s:%d", p.address, asked.GRPC.Port), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(err)
	defer connection.Close()
	service, failures := "", int32(0)
	if asked.GRPC.Service != nil {
		service = *asked.GRPC.Service
	}
	for {
		within, cancel := context.WithTimeout(ctx, probeWithin)
		answer, err := health.NewHealthClient(connection).Check(within, &health.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
		cancel()
		serves := err == nil && answer.Status == health.HealthCheckResponse_SERVING
		p.mu.Lock()
		if serves {
			p.ready, failures = true, 0
		} else if failures++; failures >= max(asked.FailureThreshold, 1) {
			p.ready = false
		}
		wait := every
		if !p.ready {
			wait = min(every, 500*time.Millisecond)
		}
		p.mu.Unlock()
		select {
		case <-ended:
			return
		case <-time.After(wait):
		}
	}
}

// end ends a deleted pod once: the hook before, SIGTERM, and SIGKILL after its grace.
func (p *pod) end(ctx context.Context, object *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		go p.node.remove(ctx, object)
		return
	}
	if p.ending {
		return
	}
	p.ending = true
	if p.process == nil {
		return
	}
	process, grace, hook := p.process, time.Duration(0), time.Duration(0)
	if object.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*object.DeletionGracePeriodSeconds) * time.Second
	}
	if l := p.container().Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
		hook = min(grace, time.Duration(l.PreStop.Sleep.Seconds)*time.Second)
	}
	time.AfterFunc(hook, func() { _ = process.Signal(syscall.SIGTERM) })
	time.AfterFunc(grace, func() { _ = process.Signal(syscall.SIGKILL) })
}

// status is what the API server is told, and whether that is new to it.
func (p *pod) status(known v1.PodStatus) (v1.PodStatus, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.address == "" {
		return known, false
	}
	now := metav1.Now()
	phase := v1.PodPending
	state := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: cmp.Or(p.waits, "ContainerCreating")}}
	switch {
	case p.process != nil:
		phase, state = v1.PodRunning, v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	case p.done && *p.exited == 0:
		phase = v1.PodSucceeded
	case p.done:
		phase = v1.PodFailed
	case p.exited != nil:
		phase, state.Waiting.Reason = v1.PodRunning, "CrashLoopBackOff"
	}
	if p.done {
		state = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: *p.exited}}
	}
	started := p.process != nil
	container := v1.ContainerStatus{Name: p.container().Name, Image: p.container().Image, Ready: p.ready, Started: &started, RestartCount: p.restarts, State: state}
	same := known.Phase == phase && known.PodIP == p.address && len(known.ContainerStatuses) == 1
	if same {
		before := known.ContainerStatuses[0]
		same = before.Ready == container.Ready && before.RestartCount == container.RestartCount && equality.Semantic.DeepEqual(before.State, state)
	}
	condition := func(kind v1.PodConditionType, holds bool) v1.PodCondition {
		status := v1.ConditionFalse
		if holds {
			status = v1.ConditionTrue
		}
		for _, before := range known.Conditions {
			if before.Type == kind && before.Status == status {
				return before
			}
		}
		return v1.PodCondition{Type: kind, Status: status, LastTransitionTime: now}
	}
	start := known.StartTime
	if start == nil {
		start = &now
	}
	return v1.PodStatus{Phase: phase, PodIP: p.address, PodIPs: []v1.PodIP{{IP: p.address}}, HostIP: "127.0.0.1", StartTime: start,
		Conditions: []v1.PodCondition{condition(v1.PodScheduled, true), condition(v1.PodInitialized, true),
			condition(v1.ContainersReady, p.ready), condition(v1.PodReady, p.ready)},
		ContainerStatuses: []v1.ContainerStatus{container}}, !same
}
