#include "data/cached_object.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/safe_file.h"

namespace ms::data {
namespace {

constexpr int kFetchers = 8;  // requests of an object at once: a store answers each in tens of milliseconds
constexpr double kOpenPatience_s = 20, kReadPatience_s = 120;

[[noreturn]] void cache_failed(const std::string& what, int err) {
  throw Error("data.cache", Blame::storage, fmt::format("the cache of objects: {}: {}", what, errno_text(err)),
              "free space there, or set MS_DATA_CACHE to a directory with more");
}

std::string cache_path() {
  const char* named = std::getenv("MS_DATA_CACHE");
  if (named != nullptr && *named != '\0') return named;
  const char* temporary = std::getenv("TMPDIR");
  return fmt::format("{}/ms-data-cache-{}", temporary != nullptr ? temporary : "/tmp", ::geteuid());
}

// Opens the directory of the cache, which is made if need be, and to which only its user may write.
UniqueFd open_cache() { return open_own_directory(cache_path(), 0700, S_IWGRP | S_IWOTH, {"data.cache", Blame::user}); }

ObjectStore store_of_environment() {
  return object_store_of([](const char* name) -> const char* { return std::getenv(name); });
}

// The name of an object's files in the cache, without what follows the dot.
std::string cache_name(const ObjectStore& store, const std::string& path, const std::string& etag, std::int64_t size) {
  return hash_hex(xxh64(fmt::format("{}\n{}\n{}\n{}", store.endpoint, path, etag, size)));
}

UniqueFd open_sized(const UniqueFd& cache, const std::string& name, std::int64_t size) {
  UniqueFd file = open_own_file(cache, name, O_RDWR, {"data.cache", Blame::user});
  if (::ftruncate(file.get(), size) != 0) cache_failed(name, errno);
  return file;
}

// Whether the whole range was read.
bool read_whole(const UniqueFd& file, std::int64_t at, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(file.get(), out.data(), out.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(got));
    at += got;
  }
  return true;
}

void write_whole(const UniqueFd& file, std::int64_t at, std::span<const std::byte> bytes, const std::string& what) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(file.get(), bytes.data(), bytes.size(), at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) cache_failed(what, put < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    at += put;
  }
}

constexpr std::int64_t kSumBytes = sizeof(std::uint64_t);

}  // namespace

CachedObject::CachedObject(std::string path) : path_(std::move(path)), store_(store_of_environment()) {
  HttpConnection connection;
  const std::optional<ObjectPart> first = read_object(connection, store_, path_, 0, 1, kOpenPatience_s);
  if (!first)
    throw user_error("data.object", fmt::format("{} does not exist in {}", path_, store_.endpoint),
                     "a token file is named by its prefix, the path without .bin and .idx");
  size_bytes_ = first->object_bytes;
  etag_ = first->etag;
  const std::string name = cache_name(store_, path_, etag_, size_bytes_);
  const std::int64_t blocks = (size_bytes_ + kBlockBytes - 1) / kBlockBytes;
  const UniqueFd cache = open_cache();
  blocks_ = open_sized(cache, name + ".blocks", size_bytes_);
  sums_ = open_sized(cache, name + ".sums", blocks * kSumBytes);
  states_ = std::vector<std::atomic<std::uint8_t>>(static_cast<std::size_t>(blocks));
}

CachedObject::~CachedObject() = default;  // jthreads: ask to stop, then join

std::int64_t CachedObject::bytes_of(std::int64_t block) const {
  return std::min(kBlockBytes, size_bytes_ - block * kBlockBytes);
}

void CachedObject::read(std::size_t at, std::span<std::byte> out) {
  MS_ASSERT(at + out.size() <= size_bytes(), "bytes {} + {} of {}", at, out.size(), size_bytes_);
  if (out.empty()) return;
  const auto begin = static_cast<std::int64_t>(at);
  const std::int64_t first = begin / kBlockBytes, last = (begin + std::ssize(out) - 1) / kBlockBytes;
  for (std::int64_t block = first; block <= last; ++block) want(block, true);
  for (std::int64_t block = first; block <= last; ++block) wait(block);
  if (!read_whole(blocks_, begin, out)) cache_failed("a block of " + path_, errno);
}

void CachedObject::will_need(std::size_t at, std::size_t size) {
  if (size == 0) return;
  const auto begin = static_cast<std::int64_t>(at);
  const std::int64_t last = std::min(begin + static_cast<std::int64_t>(size), size_bytes_) - 1;
  for (std::int64_t block = begin / kBlockBytes; block <= last / kBlockBytes; ++block) want(block, false);
}

void CachedObject::want(std::int64_t block, bool is_urgent) {
  std::atomic<std::uint8_t>& state = states_[static_cast<std::size_t>(block)];
  if (state.load(std::memory_order_acquire) != kUnknown) return;
  const std::lock_guard lock(mutex_);
  if (state.load(std::memory_order_relaxed) != kUnknown) return;
  state.store(kQueued, std::memory_order_relaxed);
  failed_.erase(block);
  if (is_urgent) {
    queue_.push_front(block);
  } else {
    queue_.push_back(block);
  }
  while (std::ssize(fetchers_) < kFetchers)
    fetchers_.emplace_back([this](const std::stop_token& stop) { fetch_queued(stop); });
  changed_.notify_all();
}

void CachedObject::wait(std::int64_t block) {
  const std::atomic<std::uint8_t>& state = states_[static_cast<std::size_t>(block)];
  if (state.load(std::memory_order_acquire) == kReady) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state.load(std::memory_order_acquire) != kQueued; });
  if (state.load(std::memory_order_relaxed) == kReady) return;
  const auto failure = failed_.find(block);
  MS_ASSERT(failure != failed_.end(), "block {} of {} is not ready", block, path_);
  std::rethrow_exception(failure->second);
}

// Fetches blocks until it is asked to stop.
void CachedObject::fetch_queued(const std::stop_token& stop) {
  std::optional<HttpConnection> connection;
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !queue_.empty(); })) {
    const std::int64_t block = queue_.front();
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {  // the trampoline of this thread: wait() throws it to the reader
      if (!connection) connection.emplace();
      fetch(block, *connection, stop);
    } catch (...) { failure = std::current_exception(); }
    lock.lock();
    if (failure) failed_[block] = failure;
    states_[static_cast<std::size_t>(block)].store(failure ? kUnknown : kReady, std::memory_order_release);
    changed_.notify_all();
  }
}

void CachedObject::fetch(std::int64_t block, HttpConnection& connection, const std::stop_token& stop) {
  const std::int64_t at = block * kBlockBytes;
  std::vector<std::byte> cached(static_cast<std::size_t>(bytes_of(block)));
  std::uint64_t sum = 0;
  const auto sum_bytes = std::as_writable_bytes(std::span(&sum, 1));
  if (read_whole(sums_, block * kSumBytes, sum_bytes) && sum != 0 && read_whole(blocks_, at, cached) &&
      xxh64(cached) == sum)
    return;
  const std::optional<ObjectPart> part =
      read_object(connection, store_, path_, at, bytes_of(block), kReadPatience_s, etag_, stop);
  if (!part || part->object_bytes != size_bytes_)
    throw Error("data.object", Blame::storage, fmt::format("{} was replaced or removed while it was read", path_));
  const std::span<const std::byte> bytes = std::as_bytes(std::span(part->bytes));
  write_whole(blocks_, at, bytes, "a block of " + path_);
  sum = xxh64(bytes);
  write_whole(sums_, block * kSumBytes, sum_bytes, "the sums of " + path_);
}

std::optional<std::string> object_copy(const std::string& path) {
  const ObjectStore store = store_of_environment();
  HttpConnection connection;
  std::optional<ObjectPart> part = read_object(connection, store, path, 0, CachedObject::kBlockBytes, kOpenPatience_s);
  if (!part) return std::nullopt;
  const UniqueFd cache = open_cache();
  const std::string name = cache_name(store, path, part->etag, part->object_bytes) + ".whole";
  std::string copy = cache_path() + "/" + name;
  struct stat found {};
  if (::fstatat(cache.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(found.st_mode) &&
      found.st_size == part->object_bytes)
    return copy;
  const std::string etag = part->etag;
  std::string bytes = std::move(part->bytes);
  while (std::ssize(bytes) < part->object_bytes) {
    constexpr std::int64_t kPiece = std::int64_t{1} << 24;
    const std::int64_t count = std::min(kPiece, part->object_bytes - std::ssize(bytes));
    const std::optional<ObjectPart> more =
        read_object(connection, store, path, std::ssize(bytes), count, kReadPatience_s, etag);
    if (!more) throw Error("data.object", Blame::storage, fmt::format("{} was removed while it was read", path));
    bytes += more->bytes;
  }
  write_file_atomic(copy, bytes);
  return copy;
}

}  // namespace ms::data
