// Command mcpgo is a client of an MCP front, or a server of one tool, on the official Go SDK.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type echoed struct {
	Text string `json:"text"`
}

func newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "go-test", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Returns its text."},
		func(_ context.Context, _ *mcp.CallToolRequest, in echoed) (*mcp.CallToolResult, echoed, error) {
			return nil, in, nil
		})
	return server
}

func main() {
	ctx := context.Background()
	switch os.Args[1] {
	case "stdio":
		if err := newServer().Run(ctx, &mcp.StdioTransport{}); err != nil {
			log.Fatal(err)
		}
	case "http", "stateless":
		options := &mcp.StreamableHTTPOptions{Stateless: os.Args[1] == "stateless"}
		handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return newServer() }, options)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(os.Stderr, "listening on %d\n", listener.Addr().(*net.TCPAddr).Port)
		log.Fatal(http.Serve(listener, handler))
	default:
		client := mcp.NewClient(&mcp.Implementation{Name: "go-test", Version: "1"}, nil)
		session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: os.Args[1]}, nil)
		if err != nil {
			log.Fatal(err)
		}
		tools, err := session.ListTools(ctx, nil)
		if err != nil {
			log.Fatal(err)
		}
		var arguments map[string]any
		if err := json.Unmarshal([]byte(os.Args[3]), &arguments); err != nil {
			log.Fatal(err)
		}
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: os.Args[2], Arguments: arguments})
		if err != nil {
			log.Fatal(err)
		}
		text, _ := json.Marshal(map[string]any{
			"protocol": session.InitializeResult(), "tools": len(tools.Tools), "result": result,
		})
		fmt.Println(string(text))
		session.Close()
	}
}
