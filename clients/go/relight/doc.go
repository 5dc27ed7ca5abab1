// Package relight is the client of Relight: model calls that are retried, failed over and resumed.
//
//	client, err := relight.New("127.0.0.1:50051")
//	…
//	answer, err := client.Invoke(ctx, relight.Prompt("Why is the sky blue?"))
//	…
//	fmt.Println(answer.Text)
package relight

//go:generate buf generate ../../../proto --template ../buf.gen.yaml --output ..
