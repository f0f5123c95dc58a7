// A service of one method and its callers in one process: JSON, gzip and SHA-256 over HTTP on loopback. It profiles
// itself for some seconds, so that its own profile can be held against one taken from outside.
//
// usage: program SECONDS SAMPLES_PER_SECOND PROFILE
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"
)

type item struct {
	ID     int       `json:"id"`
	Name   string    `json:"name"`
	Prices []float64 `json:"prices"`
}

const itemCount = 60

func main() {
	seconds, err := strconv.Atoi(os.Args[1])
	check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go func() { check(http.Serve(listener, http.HandlerFunc(answer))) }()
	rate, err := strconv.Atoi(os.Args[2])
	check(err)
	file, err := os.Create(os.Args[3])
	check(err)
	// The profile then says that it cannot change the rate, and takes this one.
	runtime.SetCPUProfileRate(rate)
	check(pprof.StartCPUProfile(file))
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	var callers sync.WaitGroup
	for range 2 {
		callers.Add(1)
		go func() { defer callers.Done(); call("http://"+listener.Addr().String(), end) }()
	}
	callers.Wait()
	pprof.StopCPUProfile()
	check(file.Close())
}

func answer(response http.ResponseWriter, request *http.Request) {
	items := make([]item, itemCount)
	for index := range items {
		items[index] = item{index, "item " + strconv.Itoa(index), prices(index)}
	}
	text, err := json.Marshal(items)
	check(err)
	sum := sha256.Sum256(text)
	response.Header().Set("Digest", fmt.Sprintf("%x", sum))
	packer := gzip.NewWriter(response)
	_, err = packer.Write(text)
	check(err)
	check(packer.Close())
}

// prices is what the application itself does.
func prices(seed int) []float64 {
	found := make([]float64, 8)
	state := uint64(seed) + 1
	for range 200 {
		for index := range found {
			state = state*6364136223846793005 + 1442695040888963407
			found[index] = float64(state>>40) / 1000
		}
	}
	return found
}

func call(address string, end time.Time) {
	for time.Now().Before(end) {
		response, err := http.Get(address)
		check(err)
		packed, err := io.ReadAll(response.Body)
		check(err)
		check(response.Body.Close())
		opened, err := gzip.NewReader(bytes.NewReader(packed))
		check(err)
		var items []item
		check(json.NewDecoder(opened).Decode(&items))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
