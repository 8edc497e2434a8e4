// An object of a store (object_store.h) that is read as a file is: blocks of it are fetched when they are wanted,
// those that will_need() names several at once, and kept in a cache on this node's disk, MS_DATA_CACHE. A later process
// of the same user reads them there.
//
// In the cache an object has two files, whose name is a hash of the store, the object and its ETag: NAME.blocks,
// sparse, as long as the object, and NAME.sums with a hash of each block, 0 for one that is absent. A block counts only
// if its hash is right: what a crash, or two processes that fetch the same block, leave behind is at worst fetched
// again. Nothing is removed from the cache.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/handle.h"
#include "data/object_store.h"

namespace ms::data {

class CachedObject {
 public:
  static constexpr std::int64_t kBlockBytes = std::int64_t{1} << 18;

  // Asks the store for the object's size. Error("data.object", user): there is none, or no access; "data.cache", user:
  // the cache's directory cannot be made, or belongs to another user.
  explicit CachedObject(std::string path);
  ~CachedObject();
  CachedObject(const CachedObject&) = delete;
  CachedObject& operator=(const CachedObject&) = delete;

  std::size_t size_bytes() const { return static_cast<std::size_t>(size_bytes_); }
  // As those of MappedFile. will_need() starts threads, so a process that calls it does not fork afterwards.
  // Error("data.object", storage): the store does not give them; "data.cache", storage: the disk of the cache is full
  // or fails.
  void read(std::size_t at, std::span<std::byte> out);
  void will_need(std::size_t at, std::size_t size);

 private:
  enum State : std::uint8_t { kUnknown, kQueued, kFetching, kReady };
  void make_ready(std::int64_t block);
  void start_fetchers();
  void fetch_queued(const std::stop_token& stop);
  // Fetches a block whose state is kFetching, unlocked. Its state is kReady or kUnknown then.
  void fetch_claimed(std::unique_lock<std::mutex>& lock, std::int64_t block, HttpConnection& connection,
                     const std::stop_token& stop);
  void fetch(std::int64_t block, HttpConnection& connection, const std::stop_token& stop);
  std::int64_t bytes_of(std::int64_t block) const;

  const std::string path_;
  const ObjectStore store_;
  std::int64_t size_bytes_ = 0;
  std::string etag_;
  UniqueFd blocks_, sums_;
  std::vector<std::atomic<std::uint8_t>> states_;  // by block; kReady: in blocks_, and its hash was right
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::int64_t> queue_;
  std::vector<HttpConnection> idle_;    // of readers
  std::vector<std::jthread> fetchers_;  // started by the first will_need()
};

// Copies a whole object into the cache, unless a copy with the right hash is there, and returns its path; nullopt:
// there is no such object. `is_optional`: as of ObjectRequest. Errors: as of CachedObject.
std::optional<std::string> object_copy(const std::string& path, bool is_optional = false);

}  // namespace ms::data
