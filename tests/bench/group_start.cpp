// The cost of starting all groups of a mesh: ours (comm/group_ids.h) and that of torch.distributed, each group in order
// with a barrier of all ranks after it. Under mpirun it measures both, on the launcher's own store, and prints a row;
// with --counts it only counts, with the same code on a store that is a map. group_start.sh calls it.
//
// The barrier is the cheapest on one machine, a futex in shared memory, and does not count as an operation of the
// store: torch.distributed's way is slower because it waits for all ranks, not because of a slow barrier.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>

#include "base/handle.h"
#include "base/text.h"
#include "comm/group_ids.h"
#include "comm/store_pmix.h"
#include "mesh/mesh.h"
#include "slurm/launch.h"

namespace ms::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::minutes kDeadline{5};

std::vector<Group> named(std::vector<mesh::GroupSpec> specs, int first_id) {
  std::vector<Group> groups;
  groups.reserve(specs.size());
  for (mesh::GroupSpec& spec : specs)
    groups.push_back({std::move(spec.name), first_id + spec.id, std::move(spec.ranks)});
  return groups;
}

mesh::Groups groups_of(int ranks) {
  const int tp = std::min(4, ranks), pp = std::min(4, ranks / tp);
  return {mesh::make_mesh(ranks / (tp * pp), pp, tp, ranks), pp > 1 ? 2 : 1, true};
}

std::string make_id() { return std::string(kMaxGroupIdBytes, 'i'); }

// One group, as torch.distributed.new_group() makes it: every rank calls it for every group, member or not.
void new_group(CountedStore& store, int rank, const Group& group) {
  const std::string key = fmt::format("ordered {}", group.id);
  if (group.ranks.front() == rank) {
    store.put(key, make_id());
    store.commit();
  } else if (group.index_of(rank) > 0) {
    store.get(group.ranks.front(), key, kDeadline);
  }
}

struct Measured {
  StoreCounts counts;
  double seconds = 0;
};
void print_row(int ranks, int groups, const Measured& ours, const Measured& ordered) {
  const auto half = [](const Measured& way, int barriers) {
    const StoreCounts& c = way.counts;
    return fmt::format("{} {} {} {} {:.4f}", c.puts, c.commits, c.gets, barriers, way.seconds);
  };
  fmt::print("{} {} {} {}\n", ranks, groups, half(ours, 0), half(ordered, groups));  // all ranks meet once a group
}

// ---- counted, without processes

class MapStore final : public Store {
 public:
  explicit MapStore(int& rank) : rank_(rank) {}
  void put(std::string_view key, std::string_view value) override {
    values_.insert_or_assign(fmt::format("{} {}", rank_, key), value);
  }
  void commit() override {}
  std::string get(int rank, std::string_view key, std::chrono::milliseconds) override {
    return values_.at(fmt::format("{} {}", rank, key));
  }

 private:
  int& rank_;  // the rank at work
  std::map<std::string, std::string> values_;
};

void count(int ranks) {
  const mesh::Groups groups = groups_of(ranks);
  int at_work = 0;
  MapStore map(at_work);
  CountedStore ours(map), ordered(map);
  std::vector<GroupIds> ids;
  for (at_work = 0; at_work < ranks; ++at_work) {
    ids.push_back(GroupIds(ours, at_work, {.configuration = 1, .deadline = kDeadline, .make_id = make_id}));
    ids.back().create(named(groups.of(at_work), 0));
  }
  for (at_work = 0; at_work < ranks; ++at_work) {
    for (const Group& group : named(groups.of(at_work), 0)) ids[static_cast<std::size_t>(at_work)].of(group);
  }
  for (const Group& group : named(groups.all(), 0)) {
    for (const int rank : group.ranks) {  // the others only wait at the barrier
      at_work = rank;
      new_group(ordered, rank, group);
    }
  }
  print_row(ranks, groups.count(), {ours.counts(), 0}, {ordered.counts(), 0});
}

// ---- measured

// Memory that all processes of the measurement map.
class SharedBarrier {
 public:
  SharedBarrier(const char* path, int rank, int ranks, Store& store) {
    const UniqueFd file(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file || ftruncate(file.get(), sizeof(pthread_barrier_t)) != 0) fail(path);
    void* memory = mmap(nullptr, sizeof(pthread_barrier_t), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) fail(path);
    barrier_ = static_cast<pthread_barrier_t*>(memory);
    if (rank == 0) {
      pthread_barrierattr_t attributes;
      pthread_barrierattr_init(&attributes);
      pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
      pthread_barrier_init(barrier_, &attributes, static_cast<unsigned>(ranks));
      store.put("barrier", "");
      store.commit();
    } else {
      store.get(0, "barrier", kDeadline);
    }
  }
  void wait() { pthread_barrier_wait(barrier_); }

 private:
  [[noreturn]] static void fail(const char* path) {
    throw Error("bench.barrier", Blame::node, fmt::format("cannot share {}: {}", path, errno_text(errno)));
  }
  pthread_barrier_t* barrier_ = nullptr;
};

std::int64_t number(const std::string& text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

struct Party {
  int rank, ranks;
  Store& store;
  SharedBarrier& barrier;
};

// Runs `way` on all ranks from one moment on; returns the time until the last rank was done, on rank 0.
Measured measure(const Party& party, const std::string& name, const std::function<void(CountedStore&)>& way) {
  party.barrier.wait();
  if (party.rank == 0) {  // all ranks sleep until a common moment
    const Clock::time_point begin = Clock::now() + std::chrono::milliseconds(200 + 3 * party.ranks);
    party.store.put(name + " begin", fmt::format("{}", begin.time_since_epoch().count()));
    party.store.commit();
  }
  const Clock::time_point begin{Clock::duration(number(party.store.get(0, name + " begin", kDeadline)))};
  std::this_thread::sleep_until(begin);
  CountedStore store(party.store);
  way(store);
  const std::int64_t end = Clock::now().time_since_epoch().count();
  const StoreCounts& mine = store.counts();
  party.store.put(name + " end", fmt::format("{} {} {} {}", end, mine.puts, mine.commits, mine.gets));
  party.store.commit();
  party.barrier.wait();
  Measured measured;
  if (party.rank != 0) return measured;
  std::int64_t last = 0;
  for (int rank = 0; rank < party.ranks; ++rank) {
    const std::vector<std::string> fields = ms::split(party.store.get(rank, name + " end", kDeadline), ' ');
    last = std::max(last, number(fields.at(0)));
    measured.counts.puts += number(fields.at(1));
    measured.counts.commits += number(fields.at(2));
    measured.counts.gets += number(fields.at(3));
  }
  measured.seconds = std::chrono::duration<double>(Clock::duration(last) - begin.time_since_epoch()).count();
  return measured;
}

Measured median(std::vector<Measured> rounds) {
  std::sort(rounds.begin(), rounds.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return rounds[rounds.size() / 2];
}

void run(const Party& party, int rounds) {
  const mesh::Groups groups = groups_of(party.ranks);
  const auto numbered = [&](int round) { return groups.count() * round; };
  std::vector<Measured> ours, ordered;
  for (int round = 0; round < rounds; ++round) {  // in turns
    ours.push_back(measure(party, fmt::format("ours {}", round), [&](CountedStore& store) {
      const std::vector<Group> mine = named(groups.of(party.rank), numbered(round));
      GroupIds ids(store, party.rank, {.configuration = 1, .deadline = kDeadline, .make_id = make_id});
      ids.create(mine);
      for (const Group& group : mine) ids.of(group);
    }));
    ordered.push_back(measure(party, fmt::format("ordered {}", round), [&](CountedStore& store) {
      for (const Group& group : named(groups.all(), numbered(round))) {
        new_group(store, party.rank, group);
        party.barrier.wait();
      }
    }));
  }
  if (party.rank == 0) print_row(party.ranks, groups.count(), median(ours), median(ordered));
}

}  // namespace
}  // namespace ms::comm

// group_start --counts RANKS...; or, under mpirun, group_start FILE ROUNDS: FILE is new and will hold the barrier.
int main(int argc, char** argv) {
  using namespace ms;
  try {
    if (argc > 1 && std::string_view(argv[1]) == "--counts") {
      for (int i = 2; i < argc; ++i) comm::count(std::atoi(argv[i]));
      return 0;
    }
    const slurm::Launch launch = slurm::this_launch();
    const comm::FirstCause cause;
    const auto store = comm::open_pmix_store(launch.rank, cause);
    if (!store || argc != 3) {
      std::fputs("usage: mpirun -np N group_start FILE ROUNDS, where there is PMIx\n", stderr);
      return 2;
    }
    comm::SharedBarrier barrier(argv[1], launch.rank, launch.size, *store);
    comm::run({launch.rank, launch.size, *store, barrier}, std::max(1, std::atoi(argv[2])));
    barrier.wait();
    store->close();
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "group_start: %s\n", error.what());
    return static_cast<int>(exit_code(error.blame()));
  }
}
