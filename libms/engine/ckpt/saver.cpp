// The host's half of saving: what is issued on the stream, and which phase the save is in. A phase changes only with a
// sum over all ranks, so that every rank issues the gather at the same place and ends the save at the same step.
#include "ckpt/saver.h"

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <utility>

#include "ckpt/save_writer.h"
#include "tensor/event_gate.h"

namespace ms::ckpt {
namespace {

using Clock = std::chrono::steady_clock;
using tensor::DType;
using tensor::Tensor;

Tensor flat_tensor(std::span<std::byte> bytes, DType dtype) {
  const std::int64_t n = static_cast<std::int64_t>(bytes.size()) / tensor::size_of(dtype);
  return {bytes.data(), 1, n, n, dtype};
}

std::vector<Piece> pieces_of(const std::vector<Held>& held) {
  std::vector<Piece> pieces;
  pieces.reserve(held.size());
  for (const Held& h : held) pieces.push_back(h.piece);
  return pieces;
}

// The part of the memory that begins on a page; host_bytes() has room for it.
std::span<std::byte> aligned_image(const tensor::Memory* memory) {
  if (memory == nullptr) return {};
  void* begin = memory->data();
  std::size_t room = memory->size_bytes();
  MS_ASSERT(std::align(kPageBytes, 1, begin, room) != nullptr, "an image of {} bytes", memory->size_bytes());
  return {static_cast<std::byte*>(begin), room};
}

comm::Group everybody(const comm::World& world, int id) {
  comm::Group group{"checkpoint", id, std::vector<int>(static_cast<std::size_t>(world.size()))};
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  return group;
}

}  // namespace

struct Saver::Impl {
  Impl(const SaverOptions& options_in, std::vector<Held> held_in, comm::World& world, tensor::Device& device,
       tensor::Device& host, std::unique_ptr<MemoryTier> copies_in);
  // Releases the host's streams that wait at a gate.
  ~Impl() {
    if (gate) gate->give_up();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::optional<tensor::Event> begin(const Manifest& of_manifest, const tensor::Event& updated, std::int64_t at);
  SaveVotes votes() const;
  void advance(const SaveVotes& sum);
  void finish();
  std::optional<SaveOutcome> take_outcome();

  bool leads() const { return rank == 0; }
  void size_slots();
  void issue_gather();
  std::vector<RankEntry> entries() const;
  void end(const SaveVotes& sum);

  // Everybody writes; rank 0 commits, or cleans up where a rank has failed; nothing is under way.
  enum class Phase { idle, writing, committing };

  const SaverOptions options;
  const std::vector<Held> held;
  const int rank, ranks;

  Phase phase = Phase::idle;
  std::int64_t step = 0;      // of the save
  std::int64_t boundary = 0;  // of the save: sums of steps up to here were cast before it
  Manifest manifest;          // of the save, on rank 0
  Clock::time_point began;
  int ranks_failed = 0;           // to write, as all know
  std::deque<SaveOutcome> ended;  // that have not been asked for

  // Members that the stream uses are declared before it, those that use it after it: destruction runs backwards.
  std::unique_ptr<tensor::Memory> memory;
  std::vector<std::byte> slot, slots;      // this rank's entry; everybody's
  std::array<double, 3> numbers{};         // a sum over all, where there is no step to carry it
  std::unique_ptr<tensor::Stream> stream;  // for copies, of the device that has the state
  // Where another device has the host's memory: for messages, and for those who wait there for what is copied here.
  std::unique_ptr<tensor::Stream> of_host, behind_gate;
  std::shared_ptr<tensor::EventGate> gate;  // of the save
  tensor::Stream& messages() const { return of_host ? *of_host : *stream; }
  std::unique_ptr<comm::Communicator> everyone;
  tensor::Event gathered;
  SaveWriter writer;
  std::unique_ptr<MemoryTier> copies;
};

Saver::Impl::Impl(const SaverOptions& options_in, std::vector<Held> held_in, comm::World& world, tensor::Device& device,
                  tensor::Device& host, std::unique_ptr<MemoryTier> copies_in)
    : options(options_in),
      held(std::move(held_in)),
      rank(world.rank()),
      ranks(world.size()),
      memory(held.empty() ? nullptr
                          : device.allocate_host(static_cast<std::size_t>(host_bytes(pieces_of(held))),
                                                 "the checkpoint's copy of the rank's state")),
      // Before communication and computation where both could run: the next update waits for the copy.
      stream(device.make_stream("checkpoint", tensor::StreamKind::comm)),
      of_host(&host == &device ? nullptr : host.make_stream("save messages", tensor::StreamKind::comm)),
      behind_gate(of_host ? host.make_stream("copied", tensor::StreamKind::compute) : nullptr),
      everyone(world.open(everybody(world, options.group_id), messages())),
      writer({options.dir, rank, options.keep_last, options.keep_every, options.resumed_from}, pieces_of(held),
             aligned_image(memory.get())),
      copies(std::move(copies_in)) {
  for (const Held& h : held) {
    MS_ASSERT(h.tensor.rows == 1 && h.tensor.cols == h.piece.slice.size() && h.tensor.dtype == h.piece.dtype,
              "the tensor of {} is {}x{} of {}, its piece has {} elements of {}", h.piece.slice.name, h.tensor.rows,
              h.tensor.cols, tensor::to_string(h.tensor.dtype), h.piece.slice.size(), tensor::to_string(h.piece.dtype));
  }
  size_slots();
}

// All slots are as long as the longest entry can become.
void Saver::Impl::size_slots() {
  const std::vector<Piece> pieces = pieces_of(held);
  const std::size_t bound = pieces.empty() ? 0 : entry_json_bound(rank_file_name(rank), pieces, size_bound(pieces));
  numbers[0] = static_cast<double>(bound);
  everyone->all_reduce(flat_tensor(std::as_writable_bytes(std::span(numbers).first(1)), DType::f64),
                       comm::ReduceKind::max);
  messages().synchronize();
  constexpr std::size_t kUnit = sizeof(std::int64_t);
  const std::size_t size = sizeof(SlotHead) + (static_cast<std::size_t>(numbers[0]) + kUnit - 1) / kUnit * kUnit;
  slot.resize(size);
  slots.resize(size * static_cast<std::size_t>(ranks));
}

std::optional<tensor::Event> Saver::Impl::begin(const Manifest& of_manifest, const tensor::Event& updated,
                                                std::int64_t at) {
  if (phase != Phase::idle) {
    if (!options.wait_when_busy) return std::nullopt;
    finish();
  }
  phase = Phase::writing;
  step = of_manifest.step;
  boundary = at;
  began = Clock::now();
  if (leads()) manifest = of_manifest;
  stream->wait(updated);
  // The previous save's transfer reads the same memory. Nothing is busy, so it has ended, and a GPU need not wait.
  if (copies && copies->sent() && !of_host) stream->wait(copies->sent());
  const FileWriter* file = writer.file();
  const std::int64_t size_bytes = file == nullptr ? 0 : file->layout().size_bytes;
  if (file != nullptr) {
    for (std::size_t i = 0; i < held.size(); ++i) {
      stream->submit(tensor::Copy{flat_tensor(file->data(i), held[i].piece.dtype), held[i].tensor});
    }
  }
  tensor::Event copied = stream->record();
  tensor::Event seen = copied;  // by the host's streams
  if (copies && behind_gate) {
    gate = std::make_shared<tensor::EventGate>();
    dynamic_cast<tensor::TaskStream&>(*behind_gate).submit_async(gate);
    seen = behind_gate->record();
  }
  writer.write(step, [copied, opens = gate] { opens ? opens->open_after(copied) : copied.synchronize(); });
  if (copies) copies->begin(step, aligned_image(memory.get()), size_bytes, seen);
  return copied;
}

// Rank 0 votes "committing" from the start of the save: no earlier sum may look like its end.
SaveVotes Saver::Impl::votes() const {
  SaveVotes votes;
  if (phase == Phase::idle) return votes;
  const bool busy = writer.busy();
  const bool copying = copies && copies->busy();
  votes.writing = phase == Phase::writing && (busy || copying) ? 1 : 0;
  votes.committing = leads() && (phase == Phase::writing || busy) ? 1 : 0;
  votes.failed = !busy && writer.result().failed ? 1 : 0;
  return votes;
}

void Saver::Impl::advance(const SaveVotes& sum) {
  if (phase == Phase::writing && sum.writing == 0) {
    phase = Phase::committing;
    ranks_failed = static_cast<int>(sum.failed);
    if (ranks_failed == 0) {
      issue_gather();
    } else {
      if (leads()) writer.abandon(step);
      if (copies) copies->abandoned(step);
    }
  } else if (phase == Phase::committing && sum.committing == 0) {
    end(sum);
  }
}

void Saver::Impl::issue_gather() {
  pack(writer.result().entry, slot);
  everyone->all_gather(flat_tensor(slots, DType::i32), flat_tensor(slot, DType::i32));
  gathered = messages().record();
  if (leads()) writer.commit(std::move(manifest), [this] { return entries(); });
}

// Everybody's, once they are here; until the next gather is issued.
std::vector<RankEntry> Saver::Impl::entries() const {
  gathered.synchronize();
  std::vector<RankEntry> entries;
  for (std::size_t at = 0; at < slots.size(); at += slot.size()) {
    entries.push_back(unpack(std::span(slots).subspan(at, slot.size())));
  }
  return entries;
}

void Saver::Impl::end(const SaveVotes& sum) {
  phase = Phase::idle;
  const SaveWriter::Result& result = writer.result();
  const Clock::time_point now = leads() ? result.ended : Clock::now();
  SaveOutcome outcome;
  outcome.step = step;
  outcome.committed = ranks_failed == 0 && sum.failed == 0;
  outcome.problem = result.problem;
  if (ranks_failed > 0 && leads() && outcome.problem.empty()) {
    outcome.problem = fmt::format("{} of {} ranks could not write", ranks_failed, ranks);
  }
  outcome.bytes = result.entry.size_bytes;
  outcome.write_s = result.write_s;
  outcome.cpu_s = result.cpu_s;
  outcome.total_s = std::chrono::duration<double>(now - began).count();
  outcome.set_aside = result.set_aside;
  outcome.pruned = result.pruned;
  if (copies && outcome.committed) {
    copies->committed(step, [this] {
      std::vector<std::string> texts;
      for (RankEntry& entry : entries()) texts.push_back(std::move(entry.json));
      return texts;
    });
  } else if (copies && ranks_failed == 0) {
    copies->abandoned(step);
  }
  ended.push_back(std::move(outcome));
}

// A rank that is done meets the others often instead of waiting for the slowest in one operation, whose deadline is
// made for messages and not for disks.
void Saver::Impl::finish() {
  constexpr std::chrono::milliseconds kPatience{50};
  const Tensor sums = flat_tensor(std::as_writable_bytes(std::span(numbers)), DType::f64);
  while (phase != Phase::idle) {
    writer.wait_for(kPatience);
    if (copies) copies->wait_for(kPatience);
    const SaveVotes mine = votes();
    numbers = {mine.writing, mine.committing, mine.failed};
    everyone->all_reduce(sums);
    messages().synchronize();
    advance({numbers[0], numbers[1], numbers[2]});
  }
}

std::optional<SaveOutcome> Saver::Impl::take_outcome() {
  if (ended.empty()) return std::nullopt;
  SaveOutcome outcome = std::move(ended.front());
  ended.pop_front();
  return outcome;
}

Saver::Saver(const SaverOptions& options, std::vector<Held> held, comm::World& world, tensor::Device& device,
             tensor::Device& host, std::unique_ptr<MemoryTier> memory)
    : impl_(std::make_unique<Impl>(options, std::move(held), world, device, host, std::move(memory))) {}
Saver::~Saver() = default;

std::int64_t Saver::host_bytes(const std::vector<Piece>& pieces) {
  return pieces.empty() ? 0 : image_bytes(size_bound(pieces)) + kPageBytes;
}

std::optional<tensor::Event> Saver::begin(const Manifest& manifest, const tensor::Event& updated,
                                          std::int64_t boundary) {
  return impl_->begin(manifest, updated, boundary);
}
bool Saver::busy() const { return impl_->phase != Impl::Phase::idle; }
SaveVotes Saver::votes() const { return impl_->votes(); }

std::optional<SaveOutcome> Saver::agreed(std::int64_t step, const SaveVotes& sum) {
  if (step > impl_->boundary) impl_->advance(sum);
  return impl_->take_outcome();
}

std::optional<SaveOutcome> Saver::finish() {
  impl_->finish();
  return impl_->take_outcome();
}

void Saver::drop_copies() {
  if (impl_->copies) impl_->copies->drop();
}

}  // namespace ms::ckpt
