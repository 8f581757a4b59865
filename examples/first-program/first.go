// Counts the runs of this program in a key, without losing one when several programs run at once.
//
// usage: first NODE,NODE,…
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const key = "/v1/keys/runs"

// A node answers or refuses within 2.5 seconds.
var client = http.Client{Timeout: 4 * time.Second}

// Asks the next node if one is down or refuses (503).
func request(nodes []string, method, body, header, value string) (*http.Response, string) {
	for _, node := range nodes {
		request, err := http.NewRequest(method, "http://"+node+key, strings.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		if header != "" {
			request.Header.Set(header, value)
		}
		answer, err := client.Do(request)
		if err != nil {
			continue
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err == nil && answer.StatusCode != http.StatusServiceUnavailable {
			return answer, string(text)
		}
	}
	log.Fatal("no node serves")
	return nil, ""
}

func main() {
	nodes := strings.Split(os.Args[1], ",")
	for {
		read, value := request(nodes, "GET", "", "", "")
		runs, header, condition := 0, "If-None-Match", "*"
		if read.StatusCode == http.StatusOK {
			number, err := strconv.Atoi(value)
			if err != nil {
				log.Fatal(err)
			}
			runs, header, condition = number, "If-Match", read.Header.Get("ETag")
		}
		// The write happens only if nobody has written since the read.
		written, answer := request(nodes, "PUT", strconv.Itoa(runs+1), header, condition)
		switch written.StatusCode {
		case http.StatusOK, http.StatusCreated:
			fmt.Println("run", runs+1)
			return
		case http.StatusPreconditionFailed:
		default:
			log.Fatalf("%d: %s", written.StatusCode, answer)
		}
	}
}
