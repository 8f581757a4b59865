module tidelock.dev/examples

go 1.24
