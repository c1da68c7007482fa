// Go that sorts, recurses, calls through interfaces and between goroutines, and collects garbage: again and again.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

type tree struct {
	Left, Right *tree
	Name        string
}

func grow(depth int) *tree {
	if depth == 0 {
		return nil
	}
	return &tree{grow(depth - 1), grow(depth - 1), fmt.Sprintf("node %d", depth)}
}

func serve(questions <-chan string, answers chan<- int) {
	for question := range questions {
		answers <- len(strings.ToUpper(question))
	}
}

func main() {
	questions, answers := make(chan string), make(chan int)
	go serve(questions, answers)
	for {
		var text bytes.Buffer
		if err := json.NewEncoder(&text).Encode(grow(6)); err != nil {
			panic(err)
		}
		words := strings.Fields(text.String())
		sort.Slice(words, func(i, j int) bool { return words[i] < words[j] })
		questions <- words[0]
		<-answers
	}
}
