#include "foreign/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "ckpt/file_pool.h"
#include "foreign/source.h"

namespace ms::foreign {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;
constexpr std::size_t kLeastEqualBytes = 64;  // of shards that are the same by no chance
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

constexpr std::int64_t kBucketAlignment = 64;  // of Megatron-LM's parameters in buckets

std::string name_of(std::string_view name) { return plain_text(name, 200); }

// Megatron-LM's dp_reshardable saves the padding between the parameters of a bucket as parts of its tensor. It does not
// set these elements: they are what was in that memory.
bool may_be_padding(const Tensor& tensor, const Box& box) {
  return tensor.name.find(".gbuf_idx_") != std::string::npos && box.sizes.size() == 1 &&
         box.sizes[0] < kBucketAlignment;
}

// The tensor or object that an item is for.
struct Use {
  std::uint32_t tensor = kNone, box = kNone, object = kNone;
};

// The bytes of one box, for what is said of files as wholes.
struct Content {
  std::uint32_t tensor = 0, file = 0, crc = 0;
  std::int64_t size_bytes = 0;
  bool constant = false;
};

class Verifier {
 public:
  Verifier(const Checkpoint& checkpoint, int threads, const std::function<void(std::int64_t)>& progress)
      : checkpoint_(checkpoint), threads_(threads), progress_(progress), uses_(checkpoint.items.size()) {
    result_.path = checkpoint.path;
    result_.format = checkpoint.format;
    result_.problems = checkpoint.problems;
    result_.doubts = checkpoint.doubts;
    result_.num_unjudged = checkpoint.num_values + checkpoint.objects.size();
    for (const Problem& unread : checkpoint.unread) refuse(unread);
    for (std::uint32_t t = 0; t < checkpoint.tensors.size(); ++t) {
      for (std::uint32_t b = 0; b < checkpoint.tensors[t].boxes.size(); ++b)
        uses_[checkpoint.tensors[t].boxes[b].item] = {t, b};
    }
    for (std::uint32_t o = 0; o < checkpoint.objects.size(); ++o) uses_[checkpoint.objects[o].second].object = o;
    counts_.resize(checkpoint.tensors.size());
  }

  Verified run() {
    if (checkpoint_.finished) {
      check_files();
      read_items();
      judge_numbers();
      judge_copies();
      if (const std::int64_t padding = padding_.nan + padding_.infinite; padding > 0)
        doubt("padding", fmt::format("{} values that are NaN or infinite in parts of fewer than {} elements of "
                                     "Megatron-LM's buckets, which may be padding",
                                     padding, kBucketAlignment));
      if (steps_.size() > 1) {
        std::string text;
        for (const auto& [step, tensor] : steps_)
          text += fmt::format("{}{} ('{}')", text.empty() ? "" : ", ", name_of(step), name_of(tensor));
        doubt("steps", "parameters have done different numbers of optimizer steps: " + text);
      }
    }
    return std::move(result_);
  }

 private:
  void add(std::vector<Problem>& to, std::string code, std::string text) {
    const std::lock_guard lock(mutex_);
    if (to.size() < kMostProblems) to.push_back({std::move(code), std::move(text)});
    if (to.size() == kMostProblems) to.push_back({"more", "there are more problems"});
  }
  void problem(std::string code, std::string text) { add(result_.problems, std::move(code), std::move(text)); }
  void doubt(std::string code, std::string text) { add(result_.doubts, std::move(code), std::move(text)); }

  // Items lie one behind the other, and the file ends with the last one.
  void check_files() {
    sizes_.resize(checkpoint_.files.size(), -1);
    for (std::uint32_t f = 0; f < checkpoint_.files.size(); ++f) {
      std::error_code error;
      const std::string path = checkpoint_.path_of(f);
      if (!std::filesystem::exists(path, error) && !error) {
        problem("missing-file", fmt::format("{} is missing", name_of(checkpoint_.files[f])));
        continue;
      }
      try {
        sizes_[f] = Source(path).size_bytes();
        result_.size_bytes += sizes_[f];
      } catch (const Error& unreadable) { refuse(unreadable); }
    }
    std::vector<std::uint32_t> order(checkpoint_.items.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto place = [&](std::uint32_t i) {
      const Item& item = checkpoint_.items[i];
      return std::tuple(item.file, item.begin, item.size_bytes);
    };
    std::ranges::sort(order, {}, place);
    std::vector<std::int64_t> ends(checkpoint_.files.size());
    for (const std::uint32_t i : order) {
      const auto [file, begin, size] = place(i);
      if (begin != ends[file])
        problem(begin < ends[file] ? "overlap" : "gap",
                fmt::format("{} of {} bytes before {} in {}", begin < ends[file] ? "an overlap" : "a gap",
                            begin < ends[file] ? ends[file] - begin : begin - ends[file], what(i), file_name(file)));
      ends[file] = std::max(ends[file], begin + size);
    }
    for (std::uint32_t f = 0; f < checkpoint_.files.size(); ++f) {
      if (sizes_[f] < 0 || sizes_[f] == ends[f]) continue;
      problem(sizes_[f] < ends[f] ? "cut-file" : "extra-bytes",
              fmt::format("{} has {} of {} bytes", file_name(f), sizes_[f], ends[f]));
    }
    // In files that are cut, the items that are there are read all the same.
    std::erase_if(order, [&](std::uint32_t i) {
      const Item& item = checkpoint_.items[i];
      return sizes_[item.file] < item.begin + item.size_bytes;
    });
    order_ = std::move(order);
  }

  std::string file_name(std::uint32_t file) const {
    const std::string& name = checkpoint_.files[file];
    return name.empty() ? std::filesystem::path(checkpoint_.path).filename().string() : name_of(name);
  }
  std::string what(std::uint32_t item) const {
    const Use& use = uses_[item];
    if (use.object != kNone) return fmt::format("'{}'", name_of(checkpoint_.objects[use.object].first));
    if (use.tensor == kNone || checkpoint_.tensors[use.tensor].boxes[use.box].saved != "") return "the file";
    const Tensor& tensor = checkpoint_.tensors[use.tensor];
    if (tensor.boxes.size() == 1) return fmt::format("'{}'", name_of(tensor.name));
    return fmt::format("'{}' at [{}]", name_of(tensor.name), fmt::join(tensor.boxes[use.box].offsets, ", "));
  }
  // It cannot be told whether this is sound.
  void refuse(Problem unread) {
    doubt(std::move(unread.code), std::move(unread.text));
    const std::lock_guard lock(mutex_);
    result_.unreadable = true;
  }
  void refuse(const Error& error) { refuse(Problem{"unreadable", error.message()}); }

  void side_by_side(std::size_t count, const std::function<void(std::size_t)>& body) const {
    const std::vector<std::int64_t> blocks(count, 1);
    ckpt::for_each_file(blocks, threads_, [&](std::size_t i, int) { body(i); });
  }

  void read_items() {
    const bool few = order_.size() < static_cast<std::size_t>(threads_);  // then the members of each go side by side
    const auto one = [&](std::size_t i) {
      try {
        read_item(order_[i], few);
      } catch (const Error& error) {
        if (error.kind() == "file.cut") {
          problem("cut-file", error.message());
        } else if (error.blame() == Blame::storage) {
          refuse(error);
        } else if (error.kind() == "data.unread") {
          refuse(Problem{"pickle", fmt::format("{} is {}", what(order_[i]), error.message())});
        } else {
          problem("zip", fmt::format("{} in {} is {}", what(order_[i]), file_name(checkpoint_.items[order_[i]].file),
                                     error.message()));
        }
      }
    };
    if (few) {
      for (std::size_t i = 0; i < order_.size(); ++i) one(i);
    } else {
      side_by_side(order_.size(), one);
    }
  }

  void read_item(std::uint32_t number, bool side) {
    const Item& item = checkpoint_.items[number];
    if (!item.transform.empty())
      return refuse(Problem{"transform", fmt::format("{} was saved through '{}', which is not read", what(number),
                                                     name_of(item.transform))});
    const Source source(checkpoint_.path_of(item.file));
    if (use_is_object(number) && item.size_bytes == 0) return;  // bytes of a program's own, which has none
    const TorchFile file = read_torch_file(source.part(item.begin), item.size_bytes);
    const std::string where = fmt::format("{} in {}", what(number), file_name(item.file));
    for (const Problem& of_file : file.problems) problem(of_file.code, fmt::format("{}: {}", where, of_file.text));
    for (const Problem& unread : file.unread) refuse(Problem{unread.code, fmt::format("{}: {}", where, unread.text)});
    if (file.has_crcs) {
      const std::lock_guard lock(mutex_);
      result_.has_crcs = true;
    }
    const Use& use = uses_[number];
    const Tensor* const tensor = use.tensor == kNone ? nullptr : &checkpoint_.tensors[use.tensor];
    const bool whole_item = tensor != nullptr && tensor->boxes[use.box].saved.empty();
    if (whole_item) compare(*tensor, tensor->boxes[use.box], file, where);
    for (const auto& [name, text] : file.leaves) {
      if (use.object != kNone && name.empty()) step(checkpoint_.objects[use.object].first, text);
      if (use.object == kNone) step(name, text);
    }
    const auto member = [&](std::size_t m) { read_member(source, item, file, m, use, whole_item, where); };
    if (side) {
      side_by_side(file.members.size(), member);
    } else {
      for (std::size_t m = 0; m < file.members.size(); ++m) member(m);
    }
  }

  bool use_is_object(std::uint32_t item) const { return uses_[item].object != kNone; }

  void compare(const Tensor& tensor, const Box& box, const TorchFile& file, const std::string& where) {
    const SavedTensor* const saved =
        file.tensors.size() == 1 && file.tensors[0].name.empty() ? file.tensors.data() : nullptr;
    if (saved == nullptr && !file.unread.empty()) return;
    if (saved == nullptr) return problem("shape", fmt::format("{} is not one tensor", where));
    if (tensor.dtype != nullptr && saved->dtype != tensor.dtype)
      problem("type", fmt::format("{} is {}, expected {}", where, saved->dtype->name, tensor.dtype->name));
    if (saved->shape != box.sizes)
      problem("shape", fmt::format("{} is [{}], expected [{}]", where, fmt::join(saved->shape, ", "),
                                   fmt::join(box.sizes, ", ")));
  }

  void step(const std::string& name, std::string text) {
    if (name != "step" && !name.ends_with(".step")) return;
    if (name.find("state") == std::string::npos && name.find("optim") == std::string::npos) return;
    const std::lock_guard lock(mutex_);
    if (text.ends_with(".0")) text.resize(text.size() - 2);
    if (steps_.size() < 8) steps_.emplace(std::move(text), name);
  }

  void read_member(const Source& source, const Item& item, const TorchFile& file, std::size_t number, const Use& use,
                   bool whole_item, const std::string& where) {
    const unpack::ZipMember& member = file.members[number];
    const Dtype* const dtype = file.types[number];
    // Whose numbers these are: those of a view are counted with the tensor that comes first.
    const auto saved = std::ranges::find(file.tensors, number, &SavedTensor::member);
    std::vector<std::byte> piece(
        static_cast<std::size_t>(std::min(kPieceBytes, std::max<std::int64_t>(member.size_bytes, 1))));
    std::uint32_t crc = 0;
    NonFinite counts;
    bool constant = dtype != nullptr;
    std::array<std::byte, 16> first{};
    for (std::int64_t at = 0; at < member.size_bytes;) {
      const std::span<std::byte> bytes = std::span(piece).first(
          static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(piece), member.size_bytes - at)));
      source.read(item.begin + member.begin + at, bytes);
      crc = unpack::zip_crc(crc, bytes);
      if (dtype != nullptr) {
        const auto element = static_cast<std::size_t>(dtype->size_bytes);
        if (dtype->count != nullptr) counts.add(dtype->count(bytes));
        if (at == 0) std::memcpy(first.data(), bytes.data(), std::min(bytes.size(), element));
        constant = constant && bytes.size() >= element && std::memcmp(first.data(), bytes.data(), element) == 0 &&
                   std::memcmp(bytes.data(), bytes.data() + element, bytes.size() - element) == 0;
      }
      at += std::ssize(bytes);
      count_bytes(std::ssize(bytes));
    }
    if (file.has_crcs && crc != member.crc)
      problem("crc", fmt::format("{}: {} has the CRC-32 {:08x}, expected {:08x}", where, name_of(member.name), crc,
                                 member.crc));
    if (saved == file.tensors.end()) return;
    if (dtype->name == "float32" && member.size_bytes == 4) {
      float value = 0;
      std::memcpy(&value, first.data(), sizeof value);
      step(whole_item ? checkpoint_.tensors[use.tensor].name : saved->name, fmt::format("{}", value));
    }
    const std::lock_guard lock(mutex_);
    if (whole_item) {
      const Tensor& tensor = checkpoint_.tensors[use.tensor];
      (may_be_padding(tensor, tensor.boxes[use.box]) ? padding_ : counts_[use.tensor]).add(counts);
      contents_.push_back({use.tensor, item.file, crc, member.size_bytes, constant});
    } else {
      loose_[checkpoint_.files.size() > 1 ? file_name(item.file) + ": " + saved->name : saved->name].add(counts);
    }
  }

  void count_bytes(std::int64_t bytes) {
    if (progress_) progress_(read_bytes_ += bytes);
  }

  void judge(const std::string& name, const NonFinite& counts) {
    if (counts.nan > 0)
      problem("nan", fmt::format("'{}' holds {}", name_of(name), plural(static_cast<std::size_t>(counts.nan), "NaN")));
    if (counts.infinite == 0) return;
    const std::string text = fmt::format("'{}' holds {} infinite values", name_of(name), counts.infinite);
    // A mask is infinite where nothing may be seen, and 0 elsewhere.
    if (counts.others || counts.nan > 0) {
      problem("infinite", text);
    } else {
      doubt("infinite", text + ", as a mask does");
    }
  }
  void judge_numbers() {
    for (std::size_t t = 0; t < counts_.size(); ++t) judge(checkpoint_.tensors[t].name, counts_[t]);
    for (const auto& [name, counts] : loose_) judge(name, counts);
  }

  // Two files that hold the same bytes for different parts of the same tensors: one was copied over the other. Experts
  // may begin as copies of one another, and have a dim of their own.
  void judge_copies() {
    std::ranges::sort(contents_, {},
                      [](const Content& c) { return std::tuple(c.tensor, c.crc, c.size_bytes, c.file); });
    std::set<std::pair<std::uint32_t, std::uint32_t>> suspects;
    for (std::size_t i = 1; i < contents_.size(); ++i) {
      const Content &a = contents_[i - 1], &b = contents_[i];
      if (!a.constant && a.tensor == b.tensor && a.crc == b.crc && a.size_bytes == b.size_bytes && a.file != b.file)
        suspects.emplace(a.file, b.file);
    }
    for (const auto& [a, b] : suspects) {
      std::map<std::uint32_t, std::vector<const Content*>> of_a, of_b;
      for (const Content& content : contents_) {
        if (content.file == a) of_a[content.tensor].push_back(&content);
        if (content.file == b) of_b[content.tensor].push_back(&content);
      }
      bool same = true, flat = false;
      std::size_t bytes = 0;
      for (const auto& [tensor, parts] : of_a) {
        const auto other = of_b.find(tensor);
        if (other == of_b.end()) continue;
        same = same && std::ranges::equal(parts, other->second, [](const Content* x, const Content* y) {
                 return x->crc == y->crc && x->size_bytes == y->size_bytes;
               });
        for (const Content* part : parts) {
          if (!part->constant) bytes += static_cast<std::size_t>(part->size_bytes);
        }
        flat = flat || checkpoint_.tensors[tensor].shape.size() <= 2;
      }
      if (!same || bytes < kLeastEqualBytes) continue;
      const std::string text =
          fmt::format("{} and {} hold the same bytes for different parts of their tensors", file_name(a), file_name(b));
      if (flat) {
        problem("same-shards", text + ": one was copied over the other");
      } else {
        doubt("same-shards", text + ", which may be experts that began as copies");
      }
    }
  }

  const Checkpoint& checkpoint_;
  const int threads_;
  const std::function<void(std::int64_t)>& progress_;
  std::vector<Use> uses_;            // of items
  std::vector<std::int64_t> sizes_;  // of files
  std::vector<std::uint32_t> order_;
  std::atomic<std::int64_t> read_bytes_{0};
  std::mutex mutex_;  // guards what follows
  Verified result_;
  std::vector<NonFinite> counts_;
  NonFinite padding_;
  std::map<std::string, NonFinite> loose_;  // of tensors in objects and files
  std::map<std::string, std::string> steps_;
  std::vector<Content> contents_;
};

}  // namespace

Verified verify(const Checkpoint& checkpoint, int threads, const std::function<void(std::int64_t)>& progress) {
  return Verifier(checkpoint, threads, progress).run();
}

std::int64_t size_bytes(const Checkpoint& checkpoint) {
  std::int64_t bytes = 0;
  for (std::uint32_t f = 0; f < checkpoint.files.size(); ++f) {
    std::error_code error;
    const auto size = std::filesystem::file_size(checkpoint.path_of(f), error);
    if (!error) bytes += static_cast<std::int64_t>(size);
  }
  return bytes;
}

}  // namespace ms::foreign
