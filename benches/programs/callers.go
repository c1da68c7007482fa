// callers SECONDS: goroutines that sort, format and collect garbage.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
)

func churn(seed int) int {
	numbers := make([]int, 2000)
	for i := range numbers {
		numbers[i] = (i*7919 + seed) % 2003
	}
	sort.Slice(numbers, func(a, b int) bool { return numbers[a] < numbers[b] })
	return len(fmt.Sprintf("%d %s", numbers[5], strings.Repeat("x", 100)))
}

func descend(frames, seed int) int {
	if frames == 0 {
		return churn(seed)
	}
	return descend(frames-1, seed+1) + frames
}

func main() {
	seconds, _ := strconv.Atoi(os.Args[1])
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
		done := make(chan int)
		go func() { done <- descend(20, 3) }()
		<-done
	}
}
