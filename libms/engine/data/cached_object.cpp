#include "data/cached_object.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/safe_file.h"

namespace ms::data {
namespace {

constexpr int kFetchers = 8;  // requests of an object at once: a store answers each in tens of milliseconds
constexpr double kOpenPatience_s = 20;

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
  struct stat found {};
  if (::fstat(file.get(), &found) != 0 || (found.st_size == 0 && ::ftruncate(file.get(), size) != 0))
    cache_failed(name, errno);
  if (found.st_size != 0 && found.st_size != size)
    throw user_error("data.cache",
                     fmt::format("the cache of objects: {}/{} has {} bytes, expected {}: it was cut", cache_path(),
                                 name, found.st_size, size),
                     "remove it");
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
  const std::optional<ObjectPart> first =
      read_object(idle_.emplace_back(), store_, {.path = path_, .count = 1, .patience_s = kOpenPatience_s});
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

CachedObject::~CachedObject() {
  for (std::jthread& fetcher : fetchers_) fetcher.request_stop();  // all at once, then they are joined
}

std::int64_t CachedObject::bytes_of(std::int64_t block) const {
  return std::min(kBlockBytes, size_bytes_ - block * kBlockBytes);
}

void CachedObject::read(std::size_t at, std::span<std::byte> out) {
  MS_ASSERT(at + out.size() <= size_bytes(), "bytes {} + {} of {}", at, out.size(), size_bytes_);
  if (out.empty()) return;
  const auto begin = static_cast<std::int64_t>(at);
  for (std::int64_t block = begin / kBlockBytes; block <= (begin + std::ssize(out) - 1) / kBlockBytes; ++block)
    make_ready(block);
  errno = 0;
  if (!read_whole(blocks_, begin, out)) cache_failed("a block of " + path_ + " was cut", errno == 0 ? EIO : errno);
}

void CachedObject::will_need(std::size_t at, std::size_t size) {
  if (size == 0) return;
  const auto begin = static_cast<std::int64_t>(at);
  const std::int64_t last = std::min(begin + static_cast<std::int64_t>(size), size_bytes_) - 1;
  const std::lock_guard lock(mutex_);
  start_fetchers();
  if (fetchers_.empty()) return;
  for (std::int64_t block = begin / kBlockBytes; block <= last / kBlockBytes; ++block) {
    std::atomic<std::uint8_t>& state = states_[static_cast<std::size_t>(block)];
    if (state.load(std::memory_order_relaxed) != kUnknown) continue;
    state.store(kQueued, std::memory_order_relaxed);
    queue_.push_back(block);
  }
  changed_.notify_all();
}

void CachedObject::start_fetchers() {
  try {
    while (std::ssize(fetchers_) < kFetchers)
      fetchers_.emplace_back([this](const std::stop_token& stop) { fetch_queued(stop); });
  } catch (const std::system_error&) {}  // fewer do: readers fetch what they need
}

// Returns once the block is in the cache: waits if a thread fetches it, and else fetches it.
void CachedObject::make_ready(std::int64_t block) {
  std::atomic<std::uint8_t>& state = states_[static_cast<std::size_t>(block)];
  if (state.load(std::memory_order_acquire) == kReady) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state.load(std::memory_order_relaxed) != kFetching; });
  if (state.load(std::memory_order_relaxed) == kReady) return;
  state.store(kFetching, std::memory_order_relaxed);  // if it is queued, the fetchers skip it
  if (idle_.empty()) idle_.emplace_back();
  HttpConnection connection = std::move(idle_.back());
  idle_.pop_back();
  fetch_claimed(lock, block, connection, {});
  idle_.push_back(std::move(connection));
}

// Fetches blocks until it is asked to stop. What fails is fetched again by who reads it, and fails there.
void CachedObject::fetch_queued(const std::stop_token& stop) {
  std::optional<HttpConnection> connection;
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !queue_.empty(); }) && !stop.stop_requested()) {
    const std::int64_t block = queue_.front();
    queue_.pop_front();
    std::atomic<std::uint8_t>& state = states_[static_cast<std::size_t>(block)];
    if (state.load(std::memory_order_relaxed) != kQueued) continue;
    state.store(kFetching, std::memory_order_relaxed);
    try {
      if (!connection) connection.emplace();
      fetch_claimed(lock, block, *connection, stop);
    } catch (const Error& error) { log::debug("data", "{}", error.message()); }
  }
}

void CachedObject::fetch_claimed(std::unique_lock<std::mutex>& lock, std::int64_t block, HttpConnection& connection,
                                 const std::stop_token& stop) {
  lock.unlock();
  bool is_fetched = false;
  const auto done = [&] {
    lock.lock();
    states_[static_cast<std::size_t>(block)].store(is_fetched ? kReady : kUnknown, std::memory_order_release);
    changed_.notify_all();
  };
  try {
    fetch(block, connection, stop);
    is_fetched = true;
  } catch (...) {
    done();
    throw;
  }
  done();
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
      read_object(connection, store_, {.path = path_, .begin = at, .count = bytes_of(block), .etag = etag_}, stop);
  if (!part || part->object_bytes != size_bytes_)
    throw Error("data.object", Blame::storage, fmt::format("{} was replaced or removed while it was read", path_));
  const std::span<const std::byte> bytes = std::as_bytes(std::span(part->bytes));
  write_whole(blocks_, at, bytes, "a block of " + path_);
  sum = xxh64(bytes);
  write_whole(sums_, block * kSumBytes, sum_bytes, "the sums of " + path_);
}

std::optional<std::string> object_copy(const std::string& path, bool is_optional) {
  const ObjectStore store = store_of_environment();
  HttpConnection connection;
  ObjectRequest request{
      .path = path, .count = CachedObject::kBlockBytes, .patience_s = kOpenPatience_s, .is_optional = is_optional};
  std::optional<ObjectPart> part = read_object(connection, store, request);
  if (!part) return std::nullopt;
  const UniqueFd cache = open_cache();
  const Refusal refusal{"data.cache", Blame::user};
  const std::string name = cache_name(store, path, part->etag, part->object_bytes) + ".whole", sum = name + ".sum";
  constexpr std::size_t kDigits = 16;
  if (const std::optional<std::string> right = read_at(cache, sum, kDigits, refusal)) {
    const std::optional<std::string> copied =
        read_at(cache, name, static_cast<std::size_t>(part->object_bytes), refusal);
    if (copied && hash_hex(xxh64(*copied)) == *right) return cache_path() + "/" + name;
  }
  std::string bytes = std::move(part->bytes);
  request = {.path = path, .etag = part->etag};
  while (std::ssize(bytes) < part->object_bytes) {
    constexpr std::int64_t kPiece = std::int64_t{1} << 24;
    request.begin = std::ssize(bytes);
    request.count = std::min(kPiece, part->object_bytes - request.begin);
    const std::optional<ObjectPart> more = read_object(connection, store, request);
    if (!more || more->object_bytes != part->object_bytes)
      throw Error("data.object", Blame::storage, fmt::format("{} was removed or replaced while it was read", path));
    bytes += more->bytes;
  }
  write_file_atomic(cache_path() + "/" + name, bytes);
  write_file_atomic(cache_path() + "/" + sum, hash_hex(xxh64(bytes)));
  return cache_path() + "/" + name;
}

}  // namespace ms::data
