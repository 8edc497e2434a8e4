#include "checker.h"

#include <link.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "block.h"

namespace ms::emulated {
namespace {

using Address = std::uintptr_t;

constexpr int kNobody = -1, kSeveral = -2;
constexpr std::size_t kStack = std::size_t{64} << 10, kSector = 32, kMostProblems = 5;

// The last access of one kind to a byte. Of several readers between two barriers only their number is known.
struct Last {
  std::int64_t launch = -1, block = kNobody;
  int thread = kNobody;
  unsigned barriers = 0;
};
struct Byte {
  Last write, read;
  bool is_written = false;
};

struct Thread {
  std::int64_t launch, block;
  int thread;
  unsigned barriers;
};

// Tells whether nothing orders `now` behind an access.
bool races(const Last& last, const Thread& now) {
  if (last.launch != now.launch || last.block == kNobody) return false;
  if (last.block != now.block) return true;
  return last.barriers == now.barriers && last.thread != now.thread;
}
void remember(Last& last, const Thread& now) {
  const bool same_launch = last.launch == now.launch;
  const bool same_epoch = same_launch && last.block == now.block && last.barriers == now.barriers;
  const std::int64_t block = same_launch && last.block != now.block && last.block != kNobody ? kSeveral : now.block;
  const int thread = same_epoch && last.thread != now.thread ? kSeveral : now.thread;
  last = {now.launch, block, thread, now.barriers};
}

struct Range {
  Address begin = 0, end = 0;
  bool holds(Address at) const { return at >= begin && at < end; }
};

// The program's own memory for variables of this thread, which is where __shared__ variables are.
Range shared_memory() {
  Range range;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        if (info->dlpi_name[0] != '\0') return 0;  // a library
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          const auto begin = reinterpret_cast<Address>(info->dlpi_tls_data);
          if (part.p_type == PT_TLS) *static_cast<Range*>(out) = {begin, begin + part.p_memsz};
        }
        return 1;
      },
      &range);
  return range;
}

// What the warps' lanes do at their n-th passage of one instruction is a request.
struct Request {
  std::set<Address> sectors;
  std::set<Address> bytes;
};

// Used by the test's thread and by the GPU's only stream.
class Checker {
 public:
  static Checker& get() {
    static Checker checker;
    return checker;
  }
  void watch(const std::byte* data, std::size_t bytes, bool is_written) {
    const std::lock_guard lock(mutex_);
    std::vector<Byte>& all = watched_[reinterpret_cast<Address>(data)];
    all.assign(bytes, {});
    for (Byte& byte : all) byte.is_written = is_written;
  }
  void forget(const std::byte* data) {
    const std::lock_guard lock(mutex_);
    watched_.erase(reinterpret_cast<Address>(data));
  }

  void access(Address at, std::size_t bytes, bool writes, const void* where) {
    const Here* here = running();
    if (here == nullptr) return;
    const std::lock_guard lock(mutex_);
    const auto stack = reinterpret_cast<Address>(__builtin_frame_address(0));
    Byte* shadow = global(at, bytes);
    if (shadow == nullptr && (at > stack ? at - stack : stack - at) < kStack) return;
    const Thread now{number_of_launch(), number_of_block(), here->index, here->barriers};
    ++all_.accesses;
    if (shadow != nullptr) {
      count(now, at, bytes, where);
      for (std::size_t i = 0; i < bytes; ++i) check(shadow[i], now, writes, "global");
    } else if (const Range shared = this_threads_shared(); shared.holds(at)) {
      if (is_built_in(at)) return;
      for (std::size_t i = 0; i < bytes; ++i) check(shared_byte(at + i, now), now, writes, "shared");
    } else if (writes || !is_constant(at)) {
      problem(now, writes, "outside of all memory");
    }
  }
  Checked take() {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, request] : requests_) {
      all_.sectors += request.sectors.size();
      all_.least_sectors += (request.bytes.size() + kSector - 1) / kSector;
    }
    requests_.clear();
    passed_.clear();
    return std::exchange(all_, {});
  }

 private:
  static std::int64_t number_of_block() {
    return (std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  }
  static Range this_threads_shared() {
    static thread_local const Range range = shared_memory();
    return range;
  }
  static bool is_built_in(Address at) {
    const auto within = [at](const auto& variable) {
      const auto begin = reinterpret_cast<Address>(&variable);
      return at >= begin && at < begin + sizeof variable;
    };
    return within(threadIdx) || within(blockIdx) || within(blockDim) || within(gridDim);
  }
  static bool is_constant(Address at) {
    extern const char begin __asm__("__executable_start"), end __asm__("_end");
    return at >= reinterpret_cast<Address>(&begin) && at < reinterpret_cast<Address>(&end);
  }
  Byte* global(Address at, std::size_t bytes) {
    auto above = watched_.upper_bound(at);
    if (above == watched_.begin()) return nullptr;
    --above;
    const std::size_t first = at - above->first;
    return first + bytes <= above->second.size() ? &above->second[first] : nullptr;
  }
  // Shared memory is new to every block.
  Byte& shared_byte(Address at, const Thread& now) {
    if (shared_launch_ != now.launch || shared_block_ != now.block) shared_.clear();
    shared_launch_ = now.launch, shared_block_ = now.block;
    return shared_[at];
  }
  void check(Byte& byte, const Thread& now, bool writes, const char* memory) {
    if (!writes && !byte.is_written) problem(now, writes, std::string("of ") + memory + " memory that nobody wrote");
    if (races(byte.write, now)) problem(now, writes, std::string("races with a write, in ") + memory + " memory");
    if (writes && races(byte.read, now))
      problem(now, writes, std::string("races with a read, in ") + memory + " memory");
    remember(writes ? byte.write : byte.read, now);
    byte.is_written = byte.is_written || writes;
  }
  void problem(const Thread& now, bool writes, const std::string& what) {
    std::ostringstream text;
    text << (writes ? "a write " : "a read ") << what << " (thread " << now.thread << " of block " << now.block
         << ", after " << now.barriers << " barriers)";
    if (all_.problems.size() < kMostProblems) all_.problems.push_back(text.str());
  }
  void count(const Thread& now, Address at, std::size_t bytes, const void* where) {
    const std::tuple lane(now.launch, now.block, now.thread, where);
    const std::tuple warp(now.launch, now.block, now.thread / kWarpSize, where, passed_[lane]++);
    Request& request = requests_[warp];
    for (std::size_t i = 0; i < bytes; ++i) request.bytes.insert(at + i), request.sectors.insert((at + i) / kSector);
  }

  std::mutex mutex_;
  std::map<Address, std::vector<Byte>> watched_;
  std::unordered_map<Address, Byte> shared_;
  std::int64_t shared_launch_ = -1, shared_block_ = -1;
  std::map<std::tuple<std::int64_t, std::int64_t, int, const void*>, int> passed_;
  std::map<std::tuple<std::int64_t, std::int64_t, int, const void*, int>, Request> requests_;
  Checked all_;
};

}  // namespace

Watched::Watched(std::size_t bytes)
    : data_(static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256))), size_(bytes) {
  Checker::get().watch(data(), size_, false);
}
Watched::~Watched() { Checker::get().forget(data()); }
void Watched::set_written() { Checker::get().watch(data(), size_, true); }

Checked checked() { return Checker::get().take(); }

}  // namespace ms::emulated

// The compiler's calls. `Caller` is the instruction's address.
#define MS_CALLER __builtin_return_address(0)
#define MS_ACCESS(name, bytes, writes)                                                                   \
  void name(void* at) {                                                                                  \
    ms::emulated::Checker::get().access(reinterpret_cast<std::uintptr_t>(at), bytes, writes, MS_CALLER); \
  }
#define MS_ACCESSES(bytes)                              \
  MS_ACCESS(__tsan_read##bytes, bytes, false)           \
  MS_ACCESS(__tsan_write##bytes, bytes, true)           \
  MS_ACCESS(__tsan_unaligned_read##bytes, bytes, false) \
  MS_ACCESS(__tsan_unaligned_write##bytes, bytes, true)

extern "C" {
MS_ACCESSES(1)
MS_ACCESSES(2)
MS_ACCESSES(4)
MS_ACCESSES(8)
MS_ACCESSES(16)
void __tsan_read_range(void* at, std::size_t bytes) {
  ms::emulated::Checker::get().access(reinterpret_cast<std::uintptr_t>(at), bytes, false, MS_CALLER);
}
void __tsan_write_range(void* at, std::size_t bytes) {
  ms::emulated::Checker::get().access(reinterpret_cast<std::uintptr_t>(at), bytes, true, MS_CALLER);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void*) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
