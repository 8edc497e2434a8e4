// Two streams, because a send ends only when it is matched: in a ring of keepers in which everybody sends first, nobody
// would receive. Each transfer is a whole image at its maximum length, preceded by the file's size.
#include "ckpt/memory_tier.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/job_thread.h"
#include "base/log.h"
#include "ckpt/buddy.h"
#include "ckpt/directory.h"
#include "ckpt/file_writer.h"
#include "ckpt/memory_files.h"

namespace ms::ckpt {
namespace {

using tensor::DType;
using tensor::Tensor;

// The size of one transfer: the training's own collectives run in between.
constexpr std::size_t kSliceBytes = std::size_t{64} << 20;

// A view of bytes as a tensor for communication; whole words.
Tensor words(std::span<std::byte> bytes) {
  const auto n = static_cast<std::int64_t>(bytes.size() / sizeof(std::int32_t));
  return {bytes.data(), 1, n, n, DType::i32};
}
Tensor doubles(std::span<double> values) {
  const std::int64_t n = std::ssize(values);
  return {std::as_writable_bytes(values).data(), 1, n, n, DType::f64};
}

template <class F>
void in_slices(std::span<std::byte> bytes, F&& each) {
  for (std::size_t at = 0; at < bytes.size(); at += kSliceBytes) {
    each(bytes.subspan(at, std::min(kSliceBytes, bytes.size() - at)));
  }
}

// Returns the message of a storage error from `function`; nullopt: it succeeded. Any other error ends the run.
template <class F>
std::optional<std::string> problem_of(F&& function) {
  try {
    function();
    return std::nullopt;
  } catch (const Error& error) {
    if (error.blame() != Blame::storage) throw;
    return error.message();
  }
}

template <class F>
bool tried(F&& function) {
  const std::optional<std::string> problem = problem_of(std::forward<F>(function));
  if (problem) log::warn("ckpt", "copies in memory: {}", *problem);
  return !problem;
}

// Returns each rank's index into the manifest's files; nullopt if a file belongs to no rank of this world.
std::optional<std::vector<std::optional<std::size_t>>> files_by_rank(const Manifest& manifest, int ranks) {
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < manifest.files.size(); ++i) by_name[manifest.files[i].name] = i;
  std::vector<std::optional<std::size_t>> files(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto found = by_name.extract(rank_file_name(rank));
    if (found) files[static_cast<std::size_t>(rank)] = found.mapped();
  }
  if (!by_name.empty()) return std::nullopt;
  return files;
}

// The ranks on the same node as this one.
std::vector<int> node_mates(const comm::World& world) {
  std::vector<int> mates;
  const std::string node = world.node(world.rank());
  for (int rank = 0; rank < world.size(); ++rank) {
    if (world.node(rank) == node) mates.push_back(rank);
  }
  return mates;
}

}  // namespace

struct MemoryTier::Impl {
  Impl(const MemoryOptions& options_in, const std::vector<Piece>& pieces, comm::World& world_in, tensor::Device& host);

  bool leads_node() const { return mates.front() == rank; }
  std::unique_ptr<comm::Communicator> open(int from, int to, int id, tensor::Stream& stream) const;
  bool all(bool good, comm::Communicator& everyone) const;
  Fetched fetch(const Manifest& manifest, comm::Communicator& everyone);
  bool receive(comm::Communicator& from, CopyFile& file, std::int64_t size_bytes) const;

  void begin(std::int64_t step, std::span<std::byte> image, std::int64_t size_bytes, const tensor::Event& copied);
  void say_once(std::int64_t step, const std::optional<std::string>& problem);
  void copy(std::int64_t step, int of_rank, std::span<const std::byte> bytes, const std::stop_token& stop);

  const MemoryOptions options;
  comm::World& world;
  const int rank, ranks;
  const std::vector<int> mates;      // ranks of this node
  std::optional<int> keeper, owner;  // who has this rank's copy; whose copy this rank has
  const std::int64_t own_bytes;      // of an image, as large as it can be
  std::int64_t owner_bytes = 0;
  bool warned = false;  // the thread's

  std::unique_ptr<tensor::Memory> received;
  std::int64_t sent_size = 0, received_size = 0;  // of the files; 0: there is none
  std::unique_ptr<tensor::Stream> outgoing, incoming;
  std::unique_ptr<comm::Communicator> to_keeper, from_owner;
  tensor::Event sent;
  JobThread thread;  // last: it uses the rest
};

MemoryTier::Impl::Impl(const MemoryOptions& options_in, const std::vector<Piece>& pieces, comm::World& world_in,
                       tensor::Device& host)
    : options(options_in),
      world(world_in),
      rank(world.rank()),
      ranks(world.size()),
      mates(node_mates(world)),
      own_bytes(buffer_bytes(pieces)),
      // Compute streams: the training's communication is scheduled first.
      outgoing(host.make_stream("memory out", tensor::StreamKind::compute)),
      incoming(host.make_stream("memory in", tensor::StreamKind::compute)),
      thread("ms-ckpt-memory", rank) {
  std::vector<std::string> nodes;
  for (int r = 0; r < ranks; ++r) nodes.push_back(world.node(r));
  const std::vector<std::optional<int>> all_keepers = keepers(options.mesh, nodes);
  keeper = all_keepers[static_cast<std::size_t>(rank)];
  const auto found = std::find(all_keepers.begin(), all_keepers.end(), std::optional(rank));
  if (found != all_keepers.end()) owner = static_cast<int>(found - all_keepers.begin());
  const auto alone = std::count(all_keepers.begin(), all_keepers.end(), std::nullopt);
  if (alone > 0 && rank == 0) {
    log::warn("ckpt", "{} of {} ranks have copies in memory on their own node only: the other nodes have too few ranks",
              alone, ranks);
  }

  // Exchanges the sizes of the images.
  std::int64_t mine = own_bytes;
  const auto number = [](std::int64_t& value) { return words(std::as_writable_bytes(std::span(&value, 1))); };
  if (keeper) {
    to_keeper = open(rank, *keeper, rank, *outgoing);
    to_keeper->send(number(mine));
  }
  if (owner) {
    from_owner = open(*owner, rank, *owner, *incoming);
    from_owner->recv(number(owner_bytes));
  }
  incoming->synchronize();
  outgoing->synchronize();
  if (owner_bytes > 0) {
    received = host.allocate(static_cast<std::size_t>(owner_bytes), "the copy of another rank's state");
  }
}

std::unique_ptr<comm::Communicator> MemoryTier::Impl::open(int from, int to, int id, tensor::Stream& stream) const {
  return world.open({fmt::format("memory {}>{}", from, to), options.first_group_id + id, {from, to}}, stream);
}

// ---- when a run begins ----------------------------------------------------------------------------------------------

bool MemoryTier::Impl::all(bool good, comm::Communicator& everyone) const {
  double failed = good ? 0 : 1;
  everyone.all_reduce(doubles(std::span(&failed, 1)));
  everyone.stream().synchronize();
  return failed == 0;
}

bool MemoryTier::Impl::receive(comm::Communicator& from, CopyFile& file, std::int64_t size_bytes) const {
  const auto padded = static_cast<std::size_t>(image_bytes(size_bytes));
  std::vector<std::byte> buffer(std::min(padded, kSliceBytes));
  bool good = true;
  for (std::size_t at = 0; at < padded; at += kSliceBytes) {
    const std::span slice = std::span(buffer).first(std::min(kSliceBytes, padded - at));
    from.recv(words(slice));
    incoming->synchronize();
    // Every slice must be received, even after a write has failed.
    const std::size_t rest = static_cast<std::size_t>(size_bytes) - at;
    good = good && tried([&] { file.append(slice.first(std::min(slice.size(), rest))); });
  }
  return good && tried([&] { file.finish(); });
}

MemoryTier::Fetched MemoryTier::Impl::fetch(const Manifest& manifest, comm::Communicator& everyone) {
  const auto files = files_by_rank(manifest, ranks);
  if (!files) return {.path = {}, .problem = "it was saved by other ranks"};
  std::map<std::size_t, MappedFile> here;
  tried([&] {
    here = copies_of(options.root, manifest);
    // Copies of other checkpoints are removed here: they must not mix with the files about to arrive.
    if (here.empty() && leads_node()) keep_copies(options.root, std::nullopt);
  });

  // By rank: who has its file and will send it, counted from 1; then whether its node lacks it. On a node the ranks
  // share the work.
  std::vector<double> table(2 * files->size());
  const auto have = [&](std::size_t r) { return (*files)[r] && here.contains(*(*files)[r]); };
  for (std::size_t r = 0; r < files->size(); ++r) {
    if (have(r) && mates[r % mates.size()] == rank) table[r] = rank + 1;
  }
  const auto me = static_cast<std::size_t>(rank);
  if ((*files)[me] && !have(me)) table[files->size() + me] = 1;
  everyone.all_reduce(doubles(table), tensor::ReduceKind::max);
  everyone.stream().synchronize();
  const auto lacks = [&](std::size_t r) { return table[files->size() + r] > 0; };
  const auto server = [&](std::size_t r) { return static_cast<int>(table[r]) - 1; };
  std::size_t gone = 0;
  for (std::size_t r = 0; r < files->size(); ++r) gone += (*files)[r] && server(r) < 0 ? 1 : 0;
  if (gone > 0) {
    return {.path = {}, .problem = fmt::format("{} of {} files are in no node's memory", gone, manifest.files.size())};
  }

  std::optional<CopyFile> file;
  bool good = true;
  if (lacks(me)) {
    const FileEntry& entry = manifest.files[*(*files)[me]];
    good = tried([&] { file.emplace(options.root, manifest.step, entry.name, entry.size_bytes); });
  }
  const std::string no_room = "a node has no room for a copy";
  if (!all(good, everyone)) return {.path = {}, .problem = no_room};
  std::vector<std::unique_ptr<comm::Communicator>> sending;
  for (std::size_t r = 0; r < files->size(); ++r) {
    if (!lacks(r) || server(r) != rank) continue;
    sending.push_back(open(rank, static_cast<int>(r), ranks + static_cast<int>(r), *outgoing));
    const std::span<const std::byte> bytes = here.at(*(*files)[r]).bytes();
    // A mapping ends with a page, as an image does. Messages are not const, but a send only reads.
    in_slices({const_cast<std::byte*>(bytes.data()), static_cast<std::size_t>(image_bytes(std::ssize(bytes)))},
              [&](std::span<std::byte> slice) { sending.back()->send(words(slice)); });
  }
  if (file) {
    const auto from = open(server(me), rank, ranks + rank, *incoming);
    good = receive(*from, *file, manifest.files[*(*files)[me]].size_bytes);
  }
  outgoing->synchronize();
  if (!all(good, everyone)) return {.path = {}, .problem = no_room};
  return {.path = options.root + "/" + step_name(manifest.step), .problem = {}};
}

// ---- saving ---------------------------------------------------------------------------------------------------------

void MemoryTier::Impl::say_once(std::int64_t step, const std::optional<std::string>& problem) {
  if (!problem || std::exchange(warned, true)) return;
  log::warn("ckpt", "step {} lacks copies in this node's memory (logged once): {}", step, *problem);
}

void MemoryTier::Impl::copy(std::int64_t step, int of_rank, std::span<const std::byte> bytes,
                            const std::stop_token& stop) {
  say_once(step, problem_of([&] { write_copy(options.root, step, rank_file_name(of_rank), bytes, stop); }));
}

void MemoryTier::Impl::begin(std::int64_t step, std::span<std::byte> image, std::int64_t size_bytes,
                             const tensor::Event& copied) {
  const auto number = [](std::int64_t& value) { return words(std::as_writable_bytes(std::span(&value, 1))); };
  tensor::Event arrived;
  if (to_keeper) {
    outgoing->wait(copied);
    sent_size = size_bytes;
    to_keeper->send(number(sent_size));
    in_slices(image.first(static_cast<std::size_t>(own_bytes)),
              [&](std::span<std::byte> slice) { to_keeper->send(words(slice)); });
    sent = outgoing->record();
  }
  if (from_owner) {
    incoming->wait(copied);  // a deadline runs from here, and the owner is at the same step
    from_owner->recv(number(received_size));
    if (received) {
      in_slices({received->data(), received->size_bytes()},
                [&](std::span<std::byte> slice) { from_owner->recv(words(slice)); });
    }
    arrived = incoming->record();
  }
  thread.post([this, step, own = image.first(static_cast<std::size_t>(size_bytes)), copied, arrived,
               gone = sent](const std::stop_token& stop) {
    copied.synchronize();
    if (!own.empty()) copy(step, rank, own, stop);
    if (arrived) {
      arrived.synchronize();
      const auto size = static_cast<std::size_t>(received_size);
      if (size > 0) copy(step, *owner, {received->data(), size}, stop);
    }
    if (gone) gone.synchronize();
  });
}

MemoryTier::MemoryTier(const MemoryOptions& options, const std::vector<Piece>& pieces, comm::World& world,
                       tensor::Device& host)
    : impl_(std::make_unique<Impl>(options, pieces, world, host)) {}
MemoryTier::~MemoryTier() = default;

std::int64_t MemoryTier::buffer_bytes(const std::vector<Piece>& pieces) {
  return pieces.empty() ? 0 : image_bytes(size_bound(pieces));
}

MemoryTier::Fetched MemoryTier::fetch(const Manifest& manifest, comm::Communicator& everyone) {
  return impl_->fetch(manifest, everyone);
}

void MemoryTier::settle(const Manifest* loaded) {
  if (!impl_->leads_node()) return;
  const std::string& root = impl_->options.root;
  tried([&] {
    if (loaded == nullptr) return keep_copies(root, std::nullopt);
    keep_copies(root, loaded->step);
    write_mark(root, loaded->step, memory_mark(*loaded));
  });
}

void MemoryTier::begin(std::int64_t step, std::span<std::byte> image, std::int64_t size_bytes,
                       const tensor::Event& copied) {
  impl_->begin(step, image, size_bytes, copied);
}
const tensor::Event& MemoryTier::sent() const { return impl_->sent; }
bool MemoryTier::busy() const { return impl_->thread.busy(); }
void MemoryTier::wait_for(std::chrono::milliseconds at_most) const { impl_->thread.wait_for(at_most); }

void MemoryTier::committed(std::int64_t step, std::function<std::vector<std::string>()> entries) {
  if (!impl_->leads_node()) return;
  impl_->thread.post([this, step, entries = std::move(entries)](const std::stop_token&) {
    impl_->say_once(step, problem_of([&] {
                      write_mark(impl_->options.root, step, memory_mark(entries()));
                      remove_older_copies(impl_->options.root, step);
                    }));
  });
}

void MemoryTier::drop() {
  if (!impl_->leads_node()) return;
  impl_->thread.post(
      [root = impl_->options.root](const std::stop_token&) { tried([&] { keep_copies(root, std::nullopt); }); });
}

void MemoryTier::abandoned(std::int64_t step) {
  // Each rank its own files: another rank of the node may be about to write this step again.
  impl_->thread.post([this, step](const std::stop_token&) {
    impl_->say_once(step, problem_of([&] {
                      remove_copy(impl_->options.root, step, rank_file_name(impl_->rank));
                      if (impl_->owner) remove_copy(impl_->options.root, step, rank_file_name(*impl_->owner));
                    }));
  });
}

}  // namespace ms::ckpt
