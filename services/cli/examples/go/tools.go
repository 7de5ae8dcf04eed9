// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Keeps the generators that go:generate builds in go.mod, at versions that fit the libraries.
package main

import (
	_ "google.golang.org/grpc/cmd/protoc-gen-go-grpc"
	_ "google.golang.org/protobuf/cmd/protoc-gen-go"
)
