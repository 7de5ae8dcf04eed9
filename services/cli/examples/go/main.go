// SPDX-License-Identifier: Apache-2.0

// Streams an answer with stock gRPC alone, and continues it after a lost connection.
//
//	go generate && go build -o bin/generate
//	bin/generate --server=localhost:50050 "Once upon a time"
//
// Exit code: 0, 1 after an error, 2 for bad usage, 130 after Ctrl-C.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "continuo/examples/go/gen/continuo/v1"
)

//go:generate mkdir -p gen
//go:generate go build -o bin/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
//go:generate protoc --plugin=bin/protoc-gen-go --plugin=bin/protoc-gen-go-grpc -I ../../../../proto --go_out=gen --go_opt=paths=source_relative --go-grpc_out=gen --go-grpc_opt=paths=source_relative continuo/v1/inference.proto

const firstPause, longestPause, reconnectFor = 100 * time.Millisecond, 3 * time.Second, time.Minute

// generate delivers every response exactly once and in order, over as many connections as it takes,
// each to the next of the servers. It adds the responses to the request's continuation, and a server
// continues exactly after them. The deadline is the context's.
func generate(ctx context.Context, servers []pb.InferenceServiceClient, request *pb.GenerateRequest,
	onResponse func(*pb.GenerateResponse), onLost func(error)) error {
	var lostSince time.Time
	pause := firstPause
	for try := 0; ; try++ {
		call, err := servers[try%len(servers)].Generate(ctx, request)
		for err == nil {
			var response *pb.GenerateResponse
			if response, err = call.Recv(); err == nil {
				if request.Continuation == nil {
					request.Continuation = &pb.Continuation{Received: &pb.GenerateResponse{}}
				}
				proto.Merge(request.Continuation.Received, response)
				lostSince, pause = time.Time{}, firstPause
				onResponse(response)
			}
		}
		if err == io.EOF || request.GetContinuation().GetReceived().GetSummary() != nil {
			return nil // The answer is complete, whatever became of the connection.
		}
		goOn := request.Continuation != nil || try+1 < len(servers)
		lost := status.Code(err) == codes.Unavailable && goOn
		// A full server accepts a continuation a little later.
		full := status.Code(err) == codes.ResourceExhausted && request.Continuation != nil
		if lostSince.IsZero() { // The loss may be noticed late.
			lostSince = time.Now()
		}
		if !lost && !full || time.Since(lostSince) > reconnectFor {
			return err
		}
		onLost(err)
		if delay := retryDelay(err); delay > pause {
			time.Sleep(delay)
		} else {
			time.Sleep(pause)
		}
		if pause *= 2; pause > longestPause {
			pause = longestPause
		}
	}
}

// retryDelay returns how long the server asks to wait, if it does.
func retryDelay(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			return retry.RetryDelay.AsDuration()
		}
	}
	return 0
}

// describe formats an error in one line: code, reason, message, and the retry delay if there is one.
func describe(err error) string {
	text, hint := code.Code(status.Code(err)).String(), ""
	for _, detail := range status.Convert(err).Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			text += " (" + d.Reason + ")"
		case *errdetails.RetryInfo:
			hint = fmt.Sprintf("; try again in %v", d.RetryDelay.AsDuration())
		}
	}
	return text + ": " + status.Convert(err).Message() + hint
}

func main() {
	server := flag.String("server", "localhost:50050", "host:port, or several with commas")
	model := flag.String("model", "", "name of the model, where several are served")
	maxTokens := flag.Uint("max_tokens", 0, "default: what the context leaves")
	temperature := flag.Float64("temperature", 0, "default: the model's own")
	seed := flag.Uint64("seed", 0, "default: the server draws one")
	ignoreEos := flag.Bool("ignore_eos", false, "go on after the end of sequence")
	timeout := flag.Float64("timeout", 600, "seconds")
	if flag.Parse(); flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: generate [flags] PROMPT")
		os.Exit(2)
	}
	request := &pb.GenerateRequest{
		Model:    *model,
		Prompt:   &pb.GenerateRequest_Text{Text: flag.Arg(0)},
		Sampling: &pb.Sampling{},
		Stopping: &pb.Stopping{IgnoreEos: *ignoreEos},
	}
	flag.Visit(func(f *flag.Flag) { // Unset fields take the model's defaults.
		switch f.Name {
		case "max_tokens":
			request.Stopping.MaxTokens = proto.Uint32(uint32(*maxTokens))
		case "temperature":
			request.Sampling.Temperature = proto.Float32(float32(*temperature))
		case "seed":
			request.Sampling.Seed = seed
		}
	})
	var servers []pb.InferenceServiceClient
	for _, address := range strings.Split(*server, ",") {
		channel, err := grpc.NewClient(address,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			// Pings find a connection that broke without a FIN or RST.
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))
		if err != nil {
			fmt.Fprintln(os.Stderr, "generate:", err)
			os.Exit(2)
		}
		servers = append(servers, pb.NewInferenceServiceClient(channel))
	}
	// Ctrl-C ends the context, which cancels the call, and the server stops, too. The deadline is sent
	// along with the call, so the server does not work beyond it.
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(interrupted, time.Duration(*timeout*float64(time.Second)))
	defer cancel()

	numTokens := 0
	err := generate(ctx, servers, request, func(response *pb.GenerateResponse) {
		for _, delta := range response.Deltas {
			numTokens += len(delta.TokenIds)
			fmt.Print(delta.Text)
		}
	}, func(err error) {
		fmt.Fprintf(os.Stderr, "[lost after %d tokens, %v; going on]\n", numTokens, status.Code(err))
	})
	fmt.Println()
	if interrupted.Err() != nil {
		os.Exit(130)
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", describe(err))
		os.Exit(1)
	}
}
