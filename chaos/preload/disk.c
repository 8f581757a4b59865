// A disk with faults.
//
// It stands between the node and the files below CHAOS_DATA, and obeys CHAOS_DISK/control, which
// the harness writes. It also keeps CHAOS_DISK/undo: what each write has replaced, and which writes
// were synced. With this the harness takes back what a disk would have lost with its power.
#include "preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// A record of the file `undo`. A write is followed by the bytes that it has replaced. The same
// fields are in disk.go.
struct record {
    uint64_t kind; // 1: a write, 2: a sync of all writes of the file before `offset`, a position in `undo`
    uint64_t inode;
    uint64_t offset;
    uint64_t replaced; // bytes that follow
    uint64_t size;     // of the file before the write
};

struct control *control;
static int undo = -1;
static uint64_t undo_end;

// The inodes of files with unsynced writes. When there are none, `undo` is truncated; otherwise it
// would grow with everything that is written.
#define UNSYNCED_MAX 64
static uint64_t unsynced[UNSYNCED_MAX];
static int unsynced_count;
// Whether `undo` may hold unsynced writes of files that are not in this list: it is not truncated.
static int is_undo_kept;
static const char *data;
static size_t data_length;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);

static int open_below(const char *directory, const char *name, int flags) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return open(path, flags | O_CLOEXEC, 0600);
}

__attribute__((constructor)) static void start(void) {
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    const char *directory = getenv("CHAOS_DISK");
    const char *below = getenv("CHAOS_DATA");
    if (!directory || !below)
        return;
    int file = open_below(directory, "control", O_RDWR);
    void *mapped = mmap(NULL, sizeof *control, PROT_READ, MAP_SHARED, file, 0);
    // What an earlier process has not synced is not synced yet.
    undo = open_below(directory, "undo", O_WRONLY | O_CREAT | O_APPEND);
    if (mapped == MAP_FAILED || undo < 0) {
        fprintf(stderr, "chaos: %s cannot be used: %s\n", directory, strerror(errno));
        _exit(70);
    }
    undo_end = (uint64_t)lseek(undo, 0, SEEK_END);
    is_undo_kept = undo_end > 0;
    control = mapped;
    data = below;
    data_length = strlen(below);
}

// Whether a descriptor is a file of the data directory: 0, 1, or 2 if it is a file of the log.
static int is_data(int fd, struct stat *found) {
    char link[64], path[PATH_MAX + 1];
    if (!control || fstat(fd, found) || !S_ISREG(found->st_mode))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length <= (ssize_t)data_length || memcmp(path, data, data_length))
        return 0;
    path[length] = 0;
    return strstr(path + data_length, "/wal-") ? 2 : 1;
}

static void record(struct record record, const void *bytes) {
    if (real_write(undo, &record, sizeof record) != sizeof record ||
        (record.replaced && real_write(undo, bytes, record.replaced) != (ssize_t)record.replaced)) {
        fprintf(stderr, "chaos: the undo file cannot be written: %s\n", strerror(errno));
        _exit(70);
    }
    undo_end += sizeof record + record.replaced;
}

static void note_unsynced(uint64_t inode) {
    for (int i = 0; i < unsynced_count; i++)
        if (unsynced[i] == inode)
            return;
    if (unsynced_count == UNSYNCED_MAX)
        is_undo_kept = 1;
    else
        unsynced[unsynced_count++] = inode;
}

static void note_synced(uint64_t inode) {
    for (int i = 0; i < unsynced_count; i++)
        if (unsynced[i] == inode)
            unsynced[i] = unsynced[--unsynced_count];
    if (unsynced_count == 0 && !is_undo_kept && ftruncate(undo, 0) == 0)
        undo_end = 0;
}

static ssize_t write_at(int fd, struct stat *found, const void *bytes, size_t length, off_t offset) {
    if (control->write_errno) {
        errno = (int)control->write_errno;
        return -1;
    }
    char *replaced = malloc(length ? length : 1);
    pthread_mutex_lock(&mutex);
    fstat(fd, found);
    // A descriptor for writing alone cannot be read. Its file is new then, as those that are
    // renamed into place.
    ssize_t known = replaced ? pread(fd, replaced, length, offset) : 0;
    struct record entry = {1, found->st_ino, (uint64_t)offset, known > 0 ? (uint64_t)known : 0, (uint64_t)found->st_size};
    record(entry, replaced);
    note_unsynced(found->st_ino);
    ssize_t written = real_pwrite(fd, bytes, length, offset);
    pthread_mutex_unlock(&mutex);
    free(replaced);
    return written;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset) {
    struct stat found;
    if (!is_data(fd, &found))
        return real_pwrite(fd, bytes, length, offset);
    return write_at(fd, &found, bytes, length, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) { return pwrite64(fd, bytes, length, offset); }

ssize_t write(int fd, const void *bytes, size_t length) {
    struct stat found;
    if (!is_data(fd, &found))
        return real_write(fd, bytes, length);
    off_t offset = fcntl(fd, F_GETFL) & O_APPEND ? found.st_size : lseek(fd, 0, SEEK_CUR);
    ssize_t written = write_at(fd, &found, bytes, length, offset);
    if (written > 0)
        lseek(fd, offset + written, SEEK_SET);
    return written;
}

static int sync_file(int fd, int (*real)(int)) {
    struct stat found;
    int kind = is_data(fd, &found);
    if (!kind)
        return real(fd);
    struct timespec step = {0, 2000000};
    for (int64_t waited = 0; waited < control->sync_delay_ms; waited += 2)
        nanosleep(&step, NULL);
    if (control->sync_errno) {
        errno = (int)control->sync_errno;
        return -1;
    }
    if (kind == 2 && control->is_lying)
        return 0;
    // The bytes are in the file already. What this machine keeps if its own power fails does not
    // matter to the test.
    pthread_mutex_lock(&mutex);
    record((struct record){2, found.st_ino, undo_end, 0, 0}, NULL);
    note_synced(found.st_ino);
    pthread_mutex_unlock(&mutex);
    return 0;
}

int fsync(int fd) { return sync_file(fd, real_fsync); }
int fdatasync(int fd) { return sync_file(fd, real_fdatasync); }
