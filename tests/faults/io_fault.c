// A disk that fails at the Nth call: preloaded into a program under test, it counts the calls that change what is
// stored below one directory, and strikes at one of them. Used by checkpoint.sh; knows nothing of checkpoints.
//
//   IO_FAULT_DIR   the directory, absolute, without links; nothing is done without it
//   IO_FAULT_AT    at which call to strike, from 1; 0 or unset: never
//   IO_FAULT_DO    kill-before, kill-after: SIGKILL; torn: half of a write, then SIGKILL; short: half of a write, no
//   error;
//                  or the name of an error: ENOSPC, EIO, EROFS, and the call is not made
//   IO_FAULT_ON    1: every call from that one on, not only one (for errors and short writes)
//   IO_FAULT_LOG   a file to which every call is appended: number, name, path
// Counts are of the process; threads share them. Writes through mapped memory are not seen.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { kMaxPath = 4096, kMaxFiles = 65536 };
enum Action { kNothing, kKillBefore, kKillAfter, kTorn, kShort, kError };
enum Known { kUnknown, kReadable, kWritable };  // what is known of a descriptor: a file below the directory

static char directory[kMaxPath];
static enum Action action;
static int error_number;
static long strike_at;
static bool strike_on;
static int log_fd = -1;
static atomic_long calls;
static atomic_uchar known[kMaxFiles];

// The next definition of a function of the C library; pedantic C has no cast from an object to a function.
#define REAL(result, name, ...)                       \
  static result (*real)(__VA_ARGS__);                 \
  if (real == NULL) {                                 \
    void* found = dlsym(RTLD_NEXT, #name);            \
    memcpy((void*)&real, (void*)&found, sizeof real); \
  }

static ssize_t real_write(int fd, const void* data, size_t size) {
  REAL(ssize_t, write, int, const void*, size_t)
  return real(fd, data, size);
}

__attribute__((constructor)) static void read_environment(void) {
  const char* dir = getenv("IO_FAULT_DIR");
  const char* at = getenv("IO_FAULT_AT");
  const char* what = getenv("IO_FAULT_DO");
  const char* on = getenv("IO_FAULT_ON");
  const char* log = getenv("IO_FAULT_LOG");
  if (dir == NULL || strlen(dir) >= sizeof directory) return;
  static const struct {
    const char* name;
    enum Action action;
    int error_number;
  } kActions[] = {
      {"kill-before", kKillBefore, 0}, {"kill-after", kKillAfter, 0}, {"torn", kTorn, 0},      {"short", kShort, 0},
      {"ENOSPC", kError, ENOSPC},      {"EIO", kError, EIO},          {"EROFS", kError, EROFS}};
  for (size_t i = 0; what != NULL && i < sizeof kActions / sizeof kActions[0]; ++i) {
    if (strcmp(what, kActions[i].name) != 0) continue;
    action = kActions[i].action;
    error_number = kActions[i].error_number;
  }
  strike_at = at == NULL ? 0 : atol(at);
  if (strike_at > 0 && action == kNothing) {
    fputs("io_fault: IO_FAULT_DO names nothing to do\n", stderr);
    abort();  // a test that tests nothing
  }
  strike_on = on != NULL && strcmp(on, "1") == 0;
  if (log != NULL) {
    REAL(int, open, const char*, int, ...)
    log_fd = real(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  }
  strcpy(directory, dir);
}

// The absolute name of a path, seen from the open directory `at`; links are not followed. NULL: not known. Holds until
// this thread has asked for two more.
static const char* named(int at, const char* path) {
  static _Thread_local char names[3][3 * kMaxPath];
  static _Thread_local unsigned turn;
  if (path == NULL) return NULL;
  char whole[3 * kMaxPath], *out = names[turn++ % 3];
  whole[0] = '\0';
  if (path[0] != '/') {
    char link[64];
    ssize_t length = -1;
    if (at == AT_FDCWD) {
      if (getcwd(whole, kMaxPath) != NULL) length = (ssize_t)strlen(whole);
    } else {
      snprintf(link, sizeof link, "/proc/self/fd/%d", at);
      length = readlink(link, whole, kMaxPath - 1);
    }
    if (length < 0) return NULL;
    whole[length] = '\0';
  }
  if (strlen(path) >= 2 * kMaxPath - 1) return NULL;
  strcat(whole, "/");
  strcat(whole, path);
  size_t end = 0;
  for (char *rest = whole, *part; (part = strsep(&rest, "/")) != NULL;) {
    if (part[0] == '\0' || strcmp(part, ".") == 0) continue;
    if (strcmp(part, "..") == 0) {
      while (end > 0 && out[--end] != '/') {}
      continue;
    }
    out[end++] = '/';
    strcpy(out + end, part);
    end += strlen(part);
  }
  out[end] = '\0';
  return out;
}

// Is it the directory or below it?
static bool below(int at, const char* path) {
  const char* out = directory[0] == '\0' ? NULL : named(at, path);
  if (out == NULL) return false;
  const size_t length = strlen(directory);
  return strncmp(out, directory, length) == 0 && (out[length] == '\0' || out[length] == '/');
}

static enum Known known_of(int fd) {
  return fd >= 0 && fd < kMaxFiles ? (enum Known)atomic_load(&known[fd]) : kUnknown;
}
static void learn(int fd, enum Known what) {
  if (fd >= 0 && fd < kMaxFiles) atomic_store(&known[fd], (unsigned char)what);
}

_Noreturn static void die(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();  // until the signal is there
}

// Counts a call, logs it, and says what is to happen to it. Does not return where that is kill-before.
static enum Action count(const char* name, const char* from, const char* path, int fd) {
  const long number = atomic_fetch_add(&calls, 1) + 1;
  if (log_fd >= 0) {
    char link[64], target[kMaxPath] = "", line[2 * kMaxPath + 128];
    if (path == NULL) {
      snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
      if (readlink(link, target, sizeof target - 1) < 0) target[0] = '\0';
    }
    const int length = snprintf(line, sizeof line, "%ld %s %s%s%s\n", number, name, from == NULL ? "" : from,
                                from == NULL ? "" : " ", path != NULL ? path : target);
    if (length > 0 && real_write(log_fd, line, (size_t)length) < 0) abort();
  }
  const bool struck = strike_at > 0 && (strike_on ? number >= strike_at : number == strike_at);
  if (!struck) return kNothing;
  if (action == kKillBefore) die();
  if (action == kError) errno = error_number;
  return action;
}
static void after(enum Action what) {
  const int saved = errno;
  if (what == kKillAfter || what == kTorn) die();
  errno = saved;
}

// What is written of `size` bytes when a write is cut short: half, in pages, so that direct I/O can go on from there.
static size_t half_of(size_t size) {
  return size >= 8192 ? size / 8192 * 4096 : size > 1 && size < 4096 ? size / 2 : size;
}

// ---- opening and closing

#define OPENED(name, path, at, flags, call)                                                    \
  const bool mine = below(at, path);                                                           \
  const bool writes = ((flags) & (O_ACCMODE | O_CREAT | O_TRUNC)) != O_RDONLY;                 \
  const enum Action what = mine && writes ? count(name, NULL, named(at, path), -1) : kNothing; \
  if (what == kError) return -1;                                                               \
  const int fd = call;                                                                         \
  after(what);                                                                                 \
  learn(fd, !mine ? kUnknown : writes ? kWritable : kReadable);                                \
  return fd;

#define MODE_OF(flags, last)                                        \
  mode_t mode = 0;                                                  \
  if (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE) { \
    va_list rest;                                                   \
    va_start(rest, last);                                           \
    mode = va_arg(rest, mode_t);                                    \
    va_end(rest);                                                   \
  }

#define OPEN(name)                                                \
  int name(const char* path, int flags, ...) {                    \
    MODE_OF(flags, flags)                                         \
    REAL(int, name, const char*, int, ...)                        \
    OPENED(#name, path, AT_FDCWD, flags, real(path, flags, mode)) \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                            \
  int name(int at, const char* path, int flags, ...) {          \
    MODE_OF(flags, flags)                                       \
    REAL(int, name, int, const char*, int, ...)                 \
    OPENED(#name, path, at, flags, real(at, path, flags, mode)) \
  }
OPENAT(openat)
OPENAT(openat64)

// What fortified callers call.
int __open_2(const char* path, int flags);
int __open_2(const char* path, int flags) { return open(path, flags); }
int __open64_2(const char* path, int flags);
int __open64_2(const char* path, int flags) { return open64(path, flags); }
int __openat_2(int at, const char* path, int flags);
int __openat_2(int at, const char* path, int flags) { return openat(at, path, flags); }
int __openat64_2(int at, const char* path, int flags);
int __openat64_2(int at, const char* path, int flags) { return openat64(at, path, flags); }

#define CREAT(name)                                                               \
  int name(const char* path, mode_t mode) {                                       \
    REAL(int, name, const char*, mode_t)                                          \
    OPENED(#name, path, AT_FDCWD, O_CREAT | O_WRONLY | O_TRUNC, real(path, mode)) \
  }
CREAT(creat)
CREAT(creat64)

// The library writes and closes such a file by itself, where nothing can be preloaded: its opening stands for all of
// it.
#define FOPEN(name)                                                                                      \
  FILE* name(const char* restrict path, const char* restrict mode) {                                     \
    REAL(FILE*, name, const char* restrict, const char* restrict)                                        \
    const enum Action what =                                                                             \
        strpbrk(mode, "wa+") != NULL && below(AT_FDCWD, path) ? count(#name, NULL, path, -1) : kNothing; \
    if (what == kError) return NULL;                                                                     \
    FILE* file = real(path, mode);                                                                       \
    after(what);                                                                                         \
    return file;                                                                                         \
  }
FOPEN(fopen)
FOPEN(fopen64)

// A descriptor is gone after close(), whatever close() says.
int close(int fd) {
  REAL(int, close, int)
  const enum Action what = known_of(fd) == kWritable ? count("close", NULL, NULL, fd) : kNothing;
  learn(fd, kUnknown);
  const int result = real(fd);
  after(what);
  if (what == kError) errno = error_number;
  return what == kError ? -1 : result;
}

// ---- writing

#define WRITE(name, fd, size, part, call)                                                      \
  const enum Action what = known_of(fd) == kWritable ? count(name, NULL, NULL, fd) : kNothing; \
  if (what == kError) return -1;                                                               \
  const size_t part = what == kShort || what == kTorn ? half_of(size) : (size);                \
  const ssize_t result = call;                                                                 \
  after(what);                                                                                 \
  return result;

ssize_t write(int fd, const void* data, size_t size){WRITE("write", fd, size, part, real_write(fd, data, part))}
#define PWRITE(name, offset_type)                                           \
  ssize_t name(int fd, const void* data, size_t size, offset_type offset) { \
    REAL(ssize_t, name, int, const void*, size_t, offset_type)              \
    WRITE(#name, fd, size, part, real(fd, data, part, offset))              \
  }
PWRITE(pwrite, off_t) PWRITE(pwrite64, off64_t)

    // A vector is cut short between its parts.
    ssize_t writev(int fd, const struct iovec* parts, int number) {
  REAL(ssize_t, writev, int, const struct iovec*, int)
  const enum Action what = known_of(fd) == kWritable ? count("writev", NULL, NULL, fd) : kNothing;
  if (what == kError) return -1;
  const ssize_t result = real(fd, parts, (what == kShort || what == kTorn) && number > 1 ? number / 2 : number);
  after(what);
  return result;
}

// ---- everything else: the call is made or not

#define CHANGE(name, mine, from, path, fd, call)                          \
  const enum Action what = mine ? count(name, from, path, fd) : kNothing; \
  if (what == kError) return -1;                                          \
  const int result = call;                                                \
  after(what);                                                            \
  return result;

#define OF_FD(name)                                                   \
  int name(int fd) {                                                  \
    REAL(int, name, int)                                              \
    CHANGE(#name, known_of(fd) != kUnknown, NULL, NULL, fd, real(fd)) \
  }
OF_FD(fsync)
OF_FD(fdatasync)
OF_FD(syncfs)

#define TRUNCATE(name, offset_type)                                          \
  int name(int fd, offset_type size) {                                       \
    REAL(int, name, int, offset_type)                                        \
    CHANGE(#name, known_of(fd) == kWritable, NULL, NULL, fd, real(fd, size)) \
  }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define FALLOCATE(name, offset_type)                                                       \
  int name(int fd, int mode, offset_type offset, offset_type size) {                       \
    REAL(int, name, int, int, offset_type, offset_type)                                    \
    CHANGE(#name, known_of(fd) == kWritable, NULL, NULL, fd, real(fd, mode, offset, size)) \
  }
FALLOCATE(fallocate, off_t)
FALLOCATE(fallocate64, off64_t)

// Returns the error instead of setting it.
#define POSIX_FALLOCATE(name, offset_type)                                                        \
  int name(int fd, offset_type offset, offset_type size) {                                        \
    REAL(int, name, int, offset_type, offset_type)                                                \
    const enum Action what = known_of(fd) == kWritable ? count(#name, NULL, NULL, fd) : kNothing; \
    if (what == kError) return error_number;                                                      \
    const int result = real(fd, offset, size);                                                    \
    after(what);                                                                                  \
    return result;                                                                                \
  }
POSIX_FALLOCATE(posix_fallocate, off_t)
POSIX_FALLOCATE(posix_fallocate64, off64_t)

#define OF_PATH(name)                                                \
  int name(const char* path) {                                       \
    REAL(int, name, const char*)                                     \
    CHANGE(#name, below(AT_FDCWD, path), NULL, path, -1, real(path)) \
  }
OF_PATH(unlink)
OF_PATH(rmdir)
OF_PATH(remove)

int unlinkat(int at, const char* path, int flags) {
  REAL(int, unlinkat, int, const char*, int)
  CHANGE("unlinkat", below(at, path), NULL, named(at, path), -1, real(at, path, flags))
}
int mkdir(const char* path, mode_t mode) {
  REAL(int, mkdir, const char*, mode_t)
  CHANGE("mkdir", below(AT_FDCWD, path), NULL, path, -1, real(path, mode))
}
int mkdirat(int at, const char* path,
            mode_t mode){REAL(int, mkdirat, int, const char*, mode_t)
                             CHANGE("mkdirat", below(at, path), NULL, named(at, path), -1, real(at, path, mode))}
#define OF_TWO_PATHS(name)                                                                    \
  int name(const char* from, const char* to) {                                                \
    REAL(int, name, const char*, const char*)                                                 \
    CHANGE(#name, below(AT_FDCWD, from) || below(AT_FDCWD, to), from, to, -1, real(from, to)) \
  }
OF_TWO_PATHS(rename) OF_TWO_PATHS(link) OF_TWO_PATHS(symlink)

    int renameat(int from_at, const char* from, int to_at, const char* to) {
  REAL(int, renameat, int, const char*, int, const char*)
  CHANGE("renameat", below(from_at, from) || below(to_at, to), named(from_at, from), named(to_at, to), -1,
         real(from_at, from, to_at, to))
}
int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) {
  REAL(int, renameat2, int, const char*, int, const char*, unsigned)
  CHANGE("renameat2", below(from_at, from) || below(to_at, to), named(from_at, from), named(to_at, to), -1,
         real(from_at, from, to_at, to, flags))
}
int linkat(int from_at, const char* from, int to_at, const char* to, int flags) {
  REAL(int, linkat, int, const char*, int, const char*, int)
  CHANGE("linkat", below(from_at, from) || below(to_at, to), named(from_at, from), named(to_at, to), -1,
         real(from_at, from, to_at, to, flags))
}
