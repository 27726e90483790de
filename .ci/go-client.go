// Gets a file over HTTP/2 and reads it in pieces of 4 KiB, behind each of which Go's client updates
// two windows; the first time only when much of it has come.
//
//	go run .ci/go-client.go http://ADDR/FILE LENGTH
package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}, Timeout: time.Minute}
	for _, pause := range []time.Duration{time.Second, 0, 0} {
		length, err := download(client, os.Args[1], pause)
		if err != nil || fmt.Sprint(length) != os.Args[2] {
			fmt.Fprintf(os.Stderr, "go: %d bytes, then %v\n", length, err)
			os.Exit(1)
		}
	}
}

func download(client *http.Client, url string, pause time.Duration) (int, error) {
	response, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	time.Sleep(pause)
	body := bufio.NewReader(response.Body)
	for length := 0; ; length++ {
		if _, err := body.ReadByte(); err == io.EOF {
			return length, nil
		} else if err != nil {
			return length, err
		}
	}
}
