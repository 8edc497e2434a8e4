#include "data/batch_ring.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <type_traits>

#include "base/error.h"
#include "base/hash.h"
#include "base/host_memory.h"
#include "base/system_error.h"
#include "base/text.h"

namespace ms::data {
namespace {

constexpr std::size_t kLine = 64;  // of a cache, so that readers do not disturb each other

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::is_trivially_copyable_v<BatchRing::Label>);

// Not FUTEX_PRIVATE: other processes wait, too.
long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

// Waits for `done`, which is looked at after every ring of the bell; returns whether it has come.
template <class Done>
bool wait_for(std::atomic<std::uint32_t>& bell, BatchRing::Patience patience, const Done& done) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (true) {
    const std::uint32_t heard = bell.load(std::memory_order_acquire);
    if (done()) return true;
    const auto left = std::chrono::ceil<std::chrono::nanoseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0) return false;
    constexpr std::int64_t kSecond_ns = 1'000'000'000;
    const timespec timeout{.tv_sec = left / kSecond_ns, .tv_nsec = left % kSecond_ns};
    if (futex(bell, FUTEX_WAIT, heard, &timeout) != 0 && errno == ETIMEDOUT) return done();
  }
}

Error ring_error(const std::string& what, int err, std::string hint = {}) {
  return system_error("data.ring", Blame::node, fmt::format("{}: {}", what, errno_text(err)), err, std::move(hint));
}

std::size_t row_bytes(const RingShape& shape) {
  return round_up(static_cast<std::size_t>(shape.rows * (shape.seq + 1)) * sizeof(std::int32_t));
}

std::size_t starts_bytes(const RingShape& shape) {
  return shape.has_starts ? round_up(static_cast<std::size_t>(shape.rows * shape.seq) * sizeof(std::int32_t)) : 0;
}

std::size_t part_bytes(const RingShape& shape) {
  return row_bytes(shape) + starts_bytes(shape) +
         round_up(static_cast<std::size_t>(shape.rows * shape.seq * shape.patch_size));
}

std::size_t slot_bytes(const RingShape& shape) {
  return round_up(sizeof(BatchRing::Label)) + static_cast<std::size_t>(shape.parts) * part_bytes(shape);
}

}  // namespace

// A number of batches that one side raises, and a bell, on which the other side waits: a word that the kernel knows.
struct alignas(kLine) BatchRing::Counter {
  std::atomic<std::uint64_t> batches;
  std::atomic<std::uint32_t> bell;
  std::atomic<std::uint32_t> waiting;  // readers, on the bell of what is published
};

namespace {

void ring_bell(std::atomic<std::uint32_t>& bell) {
  bell.fetch_add(1, std::memory_order_acq_rel);
  constexpr std::uint32_t kAll = 1 << 30;
  futex(bell, FUTEX_WAKE, kAll, nullptr);
}

// The memory has the nonce, a counter of what is published, one of what each reader has released, and the slots.
constexpr std::size_t head_bytes(const RingShape& shape) {
  return (2 + static_cast<std::size_t>(shape.readers)) * kLine;
}

}  // namespace

std::size_t RingShape::size_bytes() const { return head_bytes(*this) + BatchRing::kSlots * slot_bytes(*this); }

std::uint64_t& BatchRing::nonce() const { return *reinterpret_cast<std::uint64_t*>(memory_); }

BatchRing::Counter& BatchRing::published_counter() const { return *reinterpret_cast<Counter*>(memory_ + kLine); }

std::span<BatchRing::Counter> BatchRing::released() const {
  static_assert(sizeof(Counter) == kLine);
  return {reinterpret_cast<Counter*>(memory_ + 2 * kLine), static_cast<std::size_t>(shape_.readers)};
}

std::byte* BatchRing::slot(std::uint64_t batch) const {
  return memory_ + head_bytes(shape_) + batch % kSlots * slot_bytes(shape_);
}

BatchRing::BatchRing(const RingShape& shape) : shape_(shape) {
  const std::string what =
      fmt::format("cannot get {} of memory that the ranks of this node share, for the batches that one loader reads",
                  format_size(static_cast<double>(shape.size_bytes())));
  // Asked first, since the kernel ends processes rather than refuse the last of the memory.
  constexpr std::string_view kSmaller = "a smaller train.global_batch, or fewer ranks on a node, need less";
  const auto free_bytes = static_cast<std::size_t>(host_memory(Sysroot()).free_bytes);
  if (free_bytes > 0 && shape.size_bytes() > free_bytes) {
    throw Error("data.ring", Blame::node,
                fmt::format("{}: {} are free", what, format_size(static_cast<double>(free_bytes))),
                std::string(kSmaller));
  }
  fd_ = UniqueFd(::memfd_create("ms-batches", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd_) throw ring_error(what, errno, "memfd_create(2) must be allowed to a container");
  if (::fchmod(fd_.get(), 0600) != 0 || ::ftruncate(fd_.get(), static_cast<off_t>(shape.size_bytes())) != 0) {
    throw ring_error(what, errno);
  }
  // Reserved now: a page that is not to be had later would end the process that touches it.
  if (const int err = ::posix_fallocate(fd_.get(), 0, static_cast<off_t>(shape.size_bytes())); err != 0) {
    throw ring_error(what, err, std::string(kSmaller));
  }
  if (::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) throw ring_error(what, errno);
  map(fd_.get());
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  nonce() = xxh64(fmt::format("{} {} {} {}", ::getpid(), fd_.get(), now.tv_sec, now.tv_nsec));
}

BatchRing::BatchRing(const RingShape& shape, std::string_view address) : shape_(shape) {
  const std::vector<std::string> words = split(address, ' ');
  MS_ASSERT(words.size() == 3, "address '{}' of a ring", address);
  const std::string path = fmt::format("/proc/{}/fd/{}", words[0], words[1]);
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) {
    throw ring_error(fmt::format("cannot open {}, the batches that process {} of this node reads", path, words[0]),
                     errno, "the ranks of a node must run as one user, and see each other in /proc");
  }
  struct stat status {};
  const bool known = ::fstat(fd.get(), &status) == 0 && status.st_uid == ::geteuid() &&
                     static_cast<std::size_t>(status.st_size) == shape.size_bytes();
  if (known) map(fd.get());
  if (!known || hash_hex(nonce()) != words[2]) {
    throw Error("data.ring", Blame::node,
                fmt::format("{} is not the memory with the batches that process {} reads", path, words[0]));
  }
}

BatchRing::~BatchRing() {
  if (memory_ != nullptr) ::munmap(memory_, shape_.size_bytes());
}

void BatchRing::map(int fd) {
  void* address = ::mmap(nullptr, shape_.size_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) throw ring_error("cannot map the batches of this node", errno);
  memory_ = static_cast<std::byte*>(address);
}

std::string BatchRing::address() const { return fmt::format("{} {} {}", ::getpid(), fd_.get(), hash_hex(nonce())); }

BatchRing::Part BatchRing::part(std::uint64_t batch, int part) const {
  MS_ASSERT(part >= 0 && part < shape_.parts, "part {} of {}", part, shape_.parts);
  std::byte* at = slot(batch) + round_up(sizeof(Label)) + static_cast<std::size_t>(part) * part_bytes(shape_);
  const auto array = [](auto* begin, std::int64_t size) { return std::span(begin, static_cast<std::size_t>(size)); };
  const auto numbers = [&](std::size_t offset) { return reinterpret_cast<std::int32_t*>(at + offset); };
  auto* const patches = reinterpret_cast<std::int8_t*>(at + row_bytes(shape_) + starts_bytes(shape_));
  return {array(numbers(0), shape_.rows * (shape_.seq + 1)),
          array(numbers(row_bytes(shape_)), shape_.has_starts ? shape_.rows * shape_.seq : 0),
          array(patches, shape_.rows * shape_.seq * shape_.patch_size)};
}

BatchRing::Label& BatchRing::label(std::uint64_t batch) const { return *reinterpret_cast<Label*>(slot(batch)); }

bool BatchRing::wait_free(std::uint64_t batch, Patience patience) const {
  return wait_for(released().front().bell, patience, [&] {
    return std::ranges::all_of(released(), [&](const Counter& reader) {
      return reader.batches.load(std::memory_order_acquire) + kSlots > batch;
    });
  });
}

void BatchRing::publish(std::uint64_t batch) {
  published_counter().batches.store(batch + 1, std::memory_order_release);
  ring_bell(published_counter().bell);
}

std::uint64_t BatchRing::published() const { return published_counter().batches.load(std::memory_order_acquire); }

bool BatchRing::is_awaited() const { return published_counter().waiting.load(std::memory_order_relaxed) > 0; }

bool BatchRing::wait_published(std::uint64_t batch, Patience patience) const {
  if (published() > batch) return true;
  Counter& counter = published_counter();
  counter.waiting.fetch_add(1, std::memory_order_relaxed);
  const bool is_published = wait_for(counter.bell, patience, [&] { return published() > batch; });
  counter.waiting.fetch_sub(1, std::memory_order_relaxed);
  return is_published;
}

void BatchRing::release(int reader, std::uint64_t batch) {
  MS_ASSERT(reader >= 0 && reader < shape_.readers, "reader {} of {}", reader, shape_.readers);
  // In one order with the other readers': the last of them sees that it is.
  released()[static_cast<std::size_t>(reader)].batches.store(batch + 1, std::memory_order_seq_cst);
  const bool all = std::ranges::all_of(
      released(), [&](const Counter& other) { return other.batches.load(std::memory_order_seq_cst) > batch; });
  if (all) ring_bell(released().front().bell);  // one for all readers: the loader cannot wait on several
}

}  // namespace ms::data
