// The gRPC client of Go against a model that never answers: see ../deadlines.py.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

const (
	// Below it the answer may be late, but is one of the two.
	leastMs  = 1000
	tries    = 3
	service  = "/relight.v1.RecoveryService/"
	question = `{"invocation": {"operation": "executor", "model": {"messages": [
		{"role": "ROLE_USER", "parts": [{"text": {"text": "Why?"}}]}]}}}`
)

type result struct {
	deadlineMs int
	got        string
	right      bool
}

type client struct {
	connection *grpc.ClientConn
	files      *protoregistry.Files
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, "go:", err)
		os.Exit(1)
	}
	return value
}

func (c client) message(name string) *dynamicpb.Message {
	found := must(c.files.FindDescriptorByName(protoreflect.FullName("relight.v1." + name)))
	return dynamicpb.NewMessage(found.(protoreflect.MessageDescriptor))
}

func (c client) request(name string) proto.Message {
	request := c.message(name)
	if err := protojson.Unmarshal([]byte(question), request); err != nil {
		must(0, err)
	}
	return request
}

func (c client) waited(deadlineMs int) result {
	got := ""
	for range tries {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(deadlineMs)*time.Millisecond)
		response := c.message("InvokeWithRecoveryResponse")
		err := c.connection.Invoke(ctx, service+"InvokeWithRecovery", c.request("InvokeWithRecoveryRequest"), response)
		cancel()
		if err == nil {
			outcome := response.Descriptor().Oneofs().ByName("outcome")
			got = string(response.WhichOneof(outcome).Name())
			return result{deadlineMs, got, got == "failure" && time.Since(began).Milliseconds() >= int64(deadlineMs)*7/10}
		}
		got = status.Code(err).String()
		if deadlineMs < leastMs && got == "DeadlineExceeded" {
			return result{deadlineMs, got, true}
		}
	}
	return result{deadlineMs, got, false}
}

func (c client) read(deadlineMs int) result {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(deadlineMs)*time.Millisecond)
	defer cancel()
	stream := must(c.connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, service+"StreamWithRecovery"))
	must(0, stream.SendMsg(c.request("StreamWithRecoveryRequest")))
	must(0, stream.CloseSend())
	response := c.message("StreamWithRecoveryResponse")
	must(0, stream.RecvMsg(response))
	member := func(of protoreflect.Message, name string) protoreflect.Value {
		return of.Get(of.Descriptor().Fields().ByName(protoreflect.Name(name)))
	}
	accepted := member(member(response, "event").Message(), "accepted").Message()
	deadline := member(accepted, "deadline").Message()
	ends := time.Unix(member(deadline, "seconds").Int(), member(deadline, "nanos").Int())
	endsMs := int(ends.Sub(began).Milliseconds())
	return result{deadlineMs, fmt.Sprintf("ends after %d ms", endsMs), deadlineMs*9/10 < endsMs && endsMs < deadlineMs}
}

func main() {
	set := &descriptorpb.FileDescriptorSet{}
	must(0, proto.Unmarshal(must(os.ReadFile(os.Args[2])), set))
	connection := must(grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer connection.Close()
	c := client{connection, must(protodesc.NewFiles(set))}
	c.read(10_000) // connects
	var results []result
	var lock sync.Mutex
	var calls sync.WaitGroup
	toRead := false
	for _, text := range os.Args[3:] {
		if text == "--" {
			toRead = true
			calls.Wait()
			continue
		}
		deadlineMs := must(strconv.Atoi(text))
		if toRead {
			results = append(results, c.read(deadlineMs))
			continue
		}
		calls.Add(1)
		go func() {
			defer calls.Done()
			one := c.waited(deadlineMs)
			lock.Lock()
			defer lock.Unlock()
			results = append(results, one)
		}()
	}
	calls.Wait()
	failed := false
	for _, one := range results {
		mark := ""
		if !one.right {
			mark, failed = "  WRONG", true
		}
		fmt.Printf("go: deadline %d ms: %s%s\n", one.deadlineMs, one.got, mark)
	}
	if failed {
		fmt.Fprintln(os.Stderr, "go: FAILED")
		os.Exit(1)
	}
	fmt.Printf("go: grpc %s: all good\n", grpc.Version)
}
