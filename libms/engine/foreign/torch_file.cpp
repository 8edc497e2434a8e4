#include "foreign/torch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace ms::foreign {
namespace {

using unpack::PickleValue;

constexpr std::int64_t kMostPickleBytes = std::int64_t{96} << 20;
constexpr std::size_t kMostPickleMemory = std::size_t{256} << 20;
constexpr int kMostDepth = 64;
constexpr std::int64_t kMostValues = 1'000'000;  // shared values count each time
constexpr std::size_t kMostLeafText = 200;
constexpr std::size_t kMostNameBytes = std::size_t{128} << 20;
constexpr std::size_t kNumbersOfValue = 64;  // a list may be of a million numbers
constexpr std::size_t kMostDims = 64;

std::string shown_name(std::string_view name) { return plain_text(name, 200); }

// The text of a value, as it is if it is short and plain, else its beginning and a hash.
class LeafText {
 public:
  void add(std::string_view part) {
    if (beginning_.size() < kMostLeafText) beginning_ += part.substr(0, kMostLeafText - beginning_.size());
    size_bytes_ += part.size();
    hasher_.update(part);
  }
  bool is_empty() const { return size_bytes_ == 0; }
  std::string text() const {
    std::string text = plain_text(beginning_, kMostLeafText);
    if (size_bytes_ == text.size() && text == beginning_) return text;
    return fmt::format("{} ({} bytes, XXH64 {})", text, size_bytes_, hash_hex(hasher_.digest()));
  }

 private:
  std::string beginning_;
  std::size_t size_bytes_ = 0;
  Hasher hasher_;
};

// Goes through the values of a pickle, and collects tensors and leaves by their names.
class Walk {
 public:
  // `grow`: storages become members when a tensor names them, as in files of torch before 1.6.
  Walk(TorchFile& file, std::string prefix, bool grow) : file_(file), prefix_(std::move(prefix)), grow_(grow) {
    for (std::size_t i = 0; i < file.members.size(); ++i) members_[file.members[i].name] = i;
  }

  void value(const PickleValue& value, const std::string& name, int depth) {
    if (depth > kMostDepth) throw user_error("data.unread", "a pickle that nests too deeply");
    name_bytes_ += name.size();
    if (++values_ > kMostValues || name_bytes_ > kMostNameBytes)
      throw user_error("data.unread", "a pickle whose shared values grow beyond all measure");
    if (!value.is_none() && std::ranges::find(path_, value) != path_.end()) return;  // an object that refers to itself
    path_.push_back(value);
    take(value, name, depth);
    path_.pop_back();
  }

 private:
  void take(const PickleValue& value, const std::string& name, int depth) {
    const auto below = [&](const std::string& key) { return name.empty() ? key : name + "." + key; };
    if (!value.reference().is_none()) return unread("storage", name, "is a storage that no tensor names");
    if (!value.arguments().is_none()) {
      const std::string global = value.global();  // empty: of what a call gave
      if (tensor(global, value.arguments(), name)) return;
      if (is_unknown_tensor(global))
        return unread("tensor", name, fmt::format("is made by {}, which is not read", plain_text(global, 80)));
      this->value(value.arguments(), name, depth + 1);
      this->value(value.state(), name, depth + 1);
    }
    if (value.is_dict()) {
      for (std::size_t i = 0; i < value.size(); ++i) {
        const PickleValue key = value.key(i);
        const std::string text = key.text()      ? std::string(*key.text())
                                 : key.integer() ? fmt::format("{}", *key.integer())
                                                 : "?";
        this->value(value.value(i), below(text), depth + 1);
      }
    } else if (value.is_list()) {
      values_ += static_cast<std::int64_t>(value.size() / kNumbersOfValue);
      LeafText numbers;
      for (std::size_t i = 0; i < value.size(); ++i) {
        const PickleValue item = value.item(i);
        const std::optional<std::string> number = number_text(item);
        if (!number) {
          this->value(item, below(std::to_string(i)), depth + 1);
          continue;
        }
        numbers.add(numbers.is_empty() ? "" : ", ");
        numbers.add(*number);
        ++file_.num_values;
      }
      if (!numbers.is_empty()) file_.leaves.emplace_back(name, fmt::format("[{}]", numbers.text()));
    } else if (!value.is_none()) {
      ++file_.num_values;
      if (std::optional<std::string> text = scalar_text(value)) file_.leaves.emplace_back(name, *std::move(text));
    }
  }

  static std::optional<std::string> number_text(const PickleValue& value) {
    if (const auto number = value.integer()) return fmt::format("{}", *number);
    if (const auto real = value.real()) return fmt::format("{}", *real);
    return std::nullopt;
  }
  static std::optional<std::string> scalar_text(const PickleValue& value) {
    if (std::optional<std::string> number = number_text(value)) return number;
    if (const auto is_true = value.boolean()) return *is_true ? "true" : "false";
    if (const auto text = value.text()) {
      LeafText leaf;
      leaf.add(*text);
      return leaf.text();
    }
    std::string global = value.global();
    return global.empty() ? std::nullopt : std::optional(std::move(global));
  }

  void problem(std::string code, const std::string& name, const std::string& why) {
    file_.problems.push_back(
        {std::move(code), name.empty() ? why : fmt::format("tensor '{}' {}", shown_name(name), why)});
  }

  void unread(std::string code, const std::string& name, const std::string& why) {
    file_.unread.push_back({std::move(code), name.empty() ? why : fmt::format("'{}' {}", shown_name(name), why)});
  }

  // Whether a function of torch makes a tensor in a way that is not known. Those with tensors among their arguments,
  // and no more, are read as these.
  static bool is_unknown_tensor(const std::string& function) {
    constexpr std::array<std::string_view, 8> kOfTensors{"_rebuild_parameter",
                                                         "_rebuild_parameter_with_state",
                                                         "_rebuild_from_type_v2",
                                                         "_rebuild_sparse_tensor",
                                                         "_rebuild_sparse_csr_tensor",
                                                         "_rebuild_nested_tensor",
                                                         "_rebuild_device_tensor_from_numpy",
                                                         "_rebuild_device_tensor_from_cpu_tensor"};
    const std::string name = function.substr(function.rfind('.') + 1);
    return function.starts_with("torch.") && name.starts_with("_rebuild") &&
           std::ranges::find(kOfTensors, name) == kOfTensors.end();
  }

  // Whether the dict of a tensor's lazy operations, such as conj and neg, names one.
  static bool is_lazy(const PickleValue& metadata) {
    for (std::size_t i = 0; i < metadata.size(); ++i) {
      if (metadata.value(i).boolean() != false) return true;
    }
    return false;
  }

  // Whether this is a call that makes a tensor; then it is taken.
  bool tensor(const std::string& function, const PickleValue& arguments, const std::string& name) {
    if (function == "torch._utils._rebuild_parameter" || function == "torch._utils._rebuild_parameter_with_state") {
      const PickleValue data = arguments.item(0);
      return tensor(data.global(), data.arguments(), name);
    }
    if (function == "torch._tensor._rebuild_from_type_v2")
      return tensor(arguments.item(0).global(), arguments.item(2), name);
    const bool v3 = function == "torch._utils._rebuild_tensor_v3";
    if (!v3 && function != "torch._utils._rebuild_tensor_v2" && function != "torch._utils._rebuild_tensor")
      return false;
    if (is_lazy(arguments.item(v3 ? 7 : 6))) {
      unread("view", name, "is a view whose elements are to be negated or conjugated, which is not read");
      return true;
    }
    const PickleValue storage = arguments.item(0).reference();
    const auto first = arguments.item(1).integer();
    const auto shape = sizes_of(arguments.item(2)), strides = sizes_of(arguments.item(3));
    const auto key = storage.item(2).text();
    const auto count = storage.item(4).integer();
    if (!first || *first < 0 || !shape || !strides || shape->size() != strides->size() || !key || !count ||
        *count < 0) {
      problem("pickle", name, "is not described as torch.save does");
      return true;
    }
    const Dtype* const dtype = dtype_of(v3 ? arguments.item(6).global() : storage.item(1).global());
    if (dtype == nullptr) {
      file_.unread.push_back(
          {"type", fmt::format("tensor '{}' has the type {}, which is not known", shown_name(name),
                               plain_text(v3 ? arguments.item(6).global() : storage.item(1).global(), 80))});
      return true;
    }
    const std::string path = fmt::format("{}data/{}", prefix_, *key);
    std::int64_t expected = 0;
    const bool overflows = __builtin_mul_overflow(*count, v3 ? 1 : dtype->size_bytes, &expected);
    if (grow_ && !overflows && members_.emplace(path, file_.members.size()).second) {
      file_.members.push_back({.name = path, .begin = 0, .size_bytes = expected, .crc = 0});
      file_.types.push_back(nullptr);
    }
    const auto member = members_.find(path);
    if (member == members_.end()) {
      problem("storage", name, fmt::format("has no data: {}data/{} is not in the archive", prefix_, shown_name(*key)));
      return true;
    }
    const std::int64_t size = file_.members[member->second].size_bytes;
    if (overflows || expected != size) {
      problem("storage", name,
              fmt::format("has {} bytes of data, but {} elements of {}", size, *count, v3 ? "uint8" : dtype->name));
    }
    // The last element lies inside the storage.
    std::int64_t last = *first;
    bool overflow = false, empty = false;
    for (std::size_t d = 0; d < shape->size(); ++d) {
      std::int64_t reach = 0;
      empty = empty || (*shape)[d] == 0;
      overflow = overflow || __builtin_mul_overflow((*shape)[d] - 1, (*strides)[d], &reach) ||
                 __builtin_add_overflow(last, reach, &last);
    }
    if (!empty && (overflow || last >= size / dtype->size_bytes)) {
      problem("storage", name, fmt::format("reaches beyond its {} bytes of data", size));
      return true;
    }
    file_.types[member->second] = dtype;
    file_.tensors.push_back({name, dtype, *shape, *strides, *first, member->second});
    return true;
  }

  TorchFile& file_;
  const std::string prefix_;
  const bool grow_;
  std::map<std::string, std::size_t, std::less<>> members_;
  std::vector<PickleValue> path_;  // to the value at hand
  std::int64_t values_ = 0;
  std::size_t name_bytes_ = 0;
};

// torch before 1.6: pickles of a magic number, a version, the system and the object; then the keys of the storages, and
// these in that order, each behind the number of its elements.
TorchFile read_legacy(const unpack::ReadAt& read, std::int64_t size_bytes) {
  std::string bytes(static_cast<std::size_t>(std::min(size_bytes, kMostPickleBytes)), '\0');
  read(0, std::as_writable_bytes(std::span(bytes)));
  TorchFile file;
  file.has_crcs = false;
  std::int64_t at = 0;
  const auto next = [&] {
    unpack::Pickle pickle(std::string_view(bytes).substr(static_cast<std::size_t>(at)), kMostPickleMemory);
    at += static_cast<std::int64_t>(pickle.size_bytes());
    return pickle;
  };
  for (int i = 0; i < 3; ++i) next();
  const unpack::Pickle object = next(), keys = next();
  Walk(file, "", true).value(object.root(), "", 0);
  if (!file.unread.empty())  // without its tensors the storages cannot be found
    throw user_error("data.unread", "a file of torch before 1.6 that is not read: " + file.unread.front().text);
  const auto cut = [&](const std::string& why) {
    throw user_error("data.zip", fmt::format("a file of torch before 1.6 {} at byte {}", why, at));
  };
  for (std::size_t i = 0; i < keys.root().size(); ++i) {
    const std::string name = fmt::format("data/{}", keys.root().item(i).text().value_or("?"));
    const auto member = std::ranges::find(file.members, name, &unpack::ZipMember::name);
    if (member == file.members.end()) cut(fmt::format("with a storage {} that no tensor names", shown_name(name)));
    std::int64_t count = 0;
    if (member->size_bytes > size_bytes ||
        at > size_bytes - static_cast<std::int64_t>(sizeof count) - member->size_bytes)
      cut("that was cut off");
    read(at, std::as_writable_bytes(std::span(&count, 1)));
    const Dtype* const dtype = file.types[static_cast<std::size_t>(member - file.members.begin())];
    if (dtype == nullptr || count != member->size_bytes / dtype->size_bytes)
      cut(fmt::format("whose storage {} has another number of elements", shown_name(name)));
    member->begin = at + static_cast<std::int64_t>(sizeof count);
    at = member->begin + member->size_bytes;
  }
  if (std::ranges::find(file.members, 0, &unpack::ZipMember::begin) != file.members.end())
    cut("without all of its storages");
  if (at != size_bytes) cut("with more bytes than its storages take");
  return file;
}

}  // namespace

bool SavedTensor::dense() const {
  if (std::ranges::find(shape, 0) != shape.end()) return true;
  std::int64_t expected = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

std::optional<std::vector<std::int64_t>> sizes_of(unpack::PickleValue value) {
  if (value.global() == "torch.Size") value = value.arguments().item(0);
  if (!value.is_list() || value.size() > kMostDims) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (const PickleValue& item : value.items()) {
    if (!item.integer() || *item.integer() < 0) return std::nullopt;
    numbers.push_back(*item.integer());
  }
  return numbers;
}

bool is_torch_zip(std::string_view beginning) { return beginning.starts_with("PK\3\4"); }
bool is_legacy_torch(std::string_view beginning) { return beginning.starts_with("\x80\x02\x8a\x0a"); }

TorchFile read_torch_file(const unpack::ReadAt& read, std::int64_t size_bytes) {
  std::string beginning(static_cast<std::size_t>(std::min<std::int64_t>(size_bytes, 4)), '\0');
  read(0, std::as_writable_bytes(std::span(beginning)));
  if (is_legacy_torch(beginning)) return read_legacy(read, size_bytes);
  TorchFile file;
  file.members = unpack::zip_members(read, size_bytes);
  file.types.resize(file.members.size());
  file.has_crcs = std::ranges::any_of(file.members, [](const auto& member) { return member.crc != 0; });
  const auto text_of = [&](const unpack::ZipMember& member) {
    std::string text(static_cast<std::size_t>(member.size_bytes), '\0');
    read(member.begin, std::as_writable_bytes(std::span(text)));
    return text;
  };
  constexpr std::string_view kPickle = "data.pkl", kByteOrder = "byteorder";
  const auto pickle = std::ranges::find_if(file.members, [&](const auto& member) {
    return member.name == kPickle || member.name.ends_with(fmt::format("/{}", kPickle));
  });
  if (pickle == file.members.end())
    throw user_error("data.zip", "a zip archive without data.pkl: torch.save did not write it");
  if (pickle->size_bytes > kMostPickleBytes)
    throw user_error("data.unread", fmt::format("a pickle of {} bytes, which is not read", pickle->size_bytes));
  const std::string prefix = pickle->name.substr(0, pickle->name.size() - kPickle.size());
  for (const auto& member : file.members) {
    if (member.name != prefix + std::string(kByteOrder) || member.size_bytes > 16) continue;
    if (const std::string order = text_of(member); order != "little") {
      file.unread.push_back(
          {"byteorder", fmt::format("its bytes are in the order '{}', which is not read", plain_text(order, 20))});
    }
  }
  const std::string bytes = text_of(*pickle);
  if (file.has_crcs && unpack::zip_crc(0, std::as_bytes(std::span(bytes))) != pickle->crc)
    throw user_error("data.zip", "a zip archive whose data.pkl has another CRC-32 than its directory says");
  try {
    const unpack::Pickle parsed(bytes, kMostPickleMemory);
    Walk(file, prefix, false).value(parsed.root(), "", 0);
  } catch (const Error& error) {  // with its CRC-32 it is as it was written
    if (!file.has_crcs) throw;
    throw user_error("data.unread", error.message());
  }
  return file;
}

}  // namespace ms::foreign
