#include "foreign/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "foreign/source.h"

namespace ms::foreign {
namespace {

constexpr std::int64_t kMostTurnedBytes = std::int64_t{256} << 20;

Error damaged(const Tensor& tensor, const std::string& why) {
  return Error("ckpt.damaged", Blame::storage, fmt::format("tensor '{}' {}", plain_text(tensor.name, 200), why),
               "'ms-ckpt verify' says more");
}

}  // namespace

// An item that is open, and where the elements of its tensor are.
struct TensorReader::Part {
  std::size_t box = 0;
  Source source;
  std::int64_t at = 0;  // of the storage in the file
  std::shared_ptr<const ReadItem> item;
  const SavedTensor& saved;             // of `item`
  std::vector<std::byte> storage = {};  // of one that is not in the order of its elements
};

ReadItem::ReadItem(TorchFile read) : file(std::move(read)) {
  file.leaves = {};
  for (const SavedTensor& tensor : file.tensors) tensors.emplace(tensor.name, &tensor);
}

std::shared_ptr<const ReadItem> ReadItems::find(std::uint32_t item) const {
  const std::lock_guard lock(mutex_);
  const auto found = items_.find(item);
  return found == items_.end() ? nullptr : found->second;
}

void ReadItems::keep(std::uint32_t item, const std::shared_ptr<const ReadItem>& read) {
  if (read->file.tensors.size() < 2) return;  // there may be a million of these
  const std::lock_guard lock(mutex_);
  items_.emplace(item, read);
}

TensorReader::TensorReader(const Checkpoint& checkpoint, const Tensor& tensor)
    : checkpoint_(checkpoint), tensor_(tensor) {
  if (tensor.dtype == nullptr) throw damaged(tensor, "is of a type that is not known");
  const auto is_of_it = [&](const Problem& problem) {
    return problem.text.find("'" + plain_text(tensor.name, 200) + "'") != std::string::npos;
  };
  if (const auto problem = std::ranges::find_if(checkpoint.problems, is_of_it); problem != checkpoint.problems.end())
    throw damaged(tensor, "cannot be read: " + problem->text);
  size_bytes_ = tensor.dtype->size_bytes;
  for (const std::int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(size_bytes_, size, &size_bytes_)) throw damaged(tensor, "is larger than all storage");
  }
}

TensorReader::~TensorReader() = default;

TensorReader::Part& TensorReader::open(std::size_t number) {
  if (part_ && part_->box == number) return *part_;
  const Box& box = tensor_.boxes[number];
  const Item& item = checkpoint_.items[box.item];
  if (!item.transform.empty())
    throw damaged(tensor_, fmt::format("was saved through '{}', which is not read", plain_text(item.transform, 80)));
  Source source(checkpoint_.path_of(item.file));
  std::shared_ptr<const ReadItem> read = checkpoint_.read->find(box.item);
  if (read == nullptr) {
    read = std::make_shared<const ReadItem>(read_torch_file(source.part(item.begin), item.size_bytes));
    checkpoint_.read->keep(box.item, read);
  }
  const TorchFile& file = read->file;
  const auto saved = read->tensors.find(box.saved);
  if (!file.problems.empty()) throw damaged(tensor_, file.problems.front().text);
  if (saved == read->tensors.end() && !file.unread.empty()) throw damaged(tensor_, file.unread.front().text);
  if (saved == read->tensors.end() || saved->second->shape != box.sizes || saved->second->dtype != tensor_.dtype)
    throw damaged(tensor_, "is not in its file as the metadata says");
  const unpack::ZipMember& member = file.members[saved->second->member];
  Part part{.box = number,
            .source = std::move(source),
            .at = item.begin + member.begin,
            .item = read,
            .saved = *saved->second};
  if (!part.saved.dense()) {
    if (member.size_bytes > kMostTurnedBytes) throw damaged(tensor_, "is transposed, and too large to be turned");
    part.storage.resize(static_cast<std::size_t>(member.size_bytes));
    part.source.read(part.at, part.storage);
  }
  part_ = std::make_unique<Part>(std::move(part));
  return *part_;
}

// Reads what elements [begin, end) of the tensor the box has, run by run: a run lies together in both.
void TensorReader::read_box(std::size_t number, std::int64_t begin, std::int64_t end, std::span<std::byte> to) {
  const Box& box = tensor_.boxes[number];
  const std::size_t dims = tensor_.shape.size();
  const std::int64_t element = tensor_.dtype->size_bytes;
  if (std::ranges::find(box.sizes, 0) != box.sizes.end()) return;
  std::vector<std::int64_t> strides(dims, 1);  // of the whole tensor
  for (std::size_t d = dims; d-- > 1;) strides[d - 1] = strides[d] * tensor_.shape[d];
  std::size_t inner = dims;  // from this dim on, a run
  std::int64_t run = 1;
  while (inner > 0) {
    --inner;
    run *= box.sizes[inner];
    if (box.sizes[inner] != tensor_.shape[inner]) break;
  }
  std::int64_t first = 0;
  for (std::size_t d = 0; d < dims; ++d) first += box.offsets[d] * strides[d];
  std::vector<std::int64_t> at(inner, 0);  // the place of the run in the box
  for (std::int64_t done = 0;; done += run) {
    std::int64_t run_begin = first;
    for (std::size_t d = 0; d < inner; ++d) run_begin += at[d] * strides[d];
    const std::int64_t from = std::max(begin, run_begin), until = std::min(end, run_begin + run);
    if (from < until) {
      Part& part = open(number);
      const std::span<std::byte> out = to.subspan(static_cast<std::size_t>((from - begin) * element),
                                                  static_cast<std::size_t>((until - from) * element));
      std::int64_t index = done + from - run_begin;  // in the box
      if (part.storage.empty()) {
        part.source.read(part.at + (part.saved.first + index) * element, out);
      } else {
        for (std::size_t i = 0; i < out.size(); i += static_cast<std::size_t>(element), ++index) {
          std::int64_t place = part.saved.first, rest = index;
          for (std::size_t d = dims; d-- > 0; rest /= box.sizes[d])
            place += rest % box.sizes[d] * part.saved.strides[d];
          std::memcpy(&out[i], &part.storage[static_cast<std::size_t>(place * element)],
                      static_cast<std::size_t>(element));
        }
      }
    }
    std::size_t d = inner;
    while (d > 0 && ++at[d - 1] == box.sizes[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

void TensorReader::read(std::int64_t at, std::span<std::byte> to) {
  const std::int64_t element = tensor_.dtype->size_bytes;
  MS_ASSERT(at % element == 0 && std::ssize(to) % element == 0 && at + std::ssize(to) <= size_bytes_,
            "bytes {} to {} of {}", at, at + std::ssize(to), size_bytes_);
  try {
    for (std::size_t box = 0; box < tensor_.boxes.size(); ++box)
      read_box(box, at / element, (at + std::ssize(to)) / element, to);
  } catch (const Error& error) {
    if (error.blame() != Blame::user) throw;
    throw damaged(tensor_, "is in " + error.message());
  }
}

}  // namespace ms::foreign
