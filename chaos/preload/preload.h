// Shared by the files of the library that is preloaded into a node.
#define _GNU_SOURCE
#include <stdint.h>

// What the harness wants of the disk and the clocks. The same fields are in disk.go.
struct control {
    volatile int64_t clock_offset_ns;     // of the wall clock
    volatile int64_t clock_rate_permille; // of all clocks
    volatile int64_t sync_delay_ms;       // each sync takes this long, at most until it is 0 again
    volatile int64_t sync_errno;          // syncs fail with this
    volatile int64_t write_errno;         // writes fail with this
    volatile int64_t is_lying;            // syncs of the log succeed without doing anything
};

// NULL until the file has been mapped.
extern struct control *control;
