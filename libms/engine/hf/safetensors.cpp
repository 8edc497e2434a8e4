// The reader. safetensors_write.cpp has the writer.
#include "hf/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "hf/json_value.h"
#include "hf/problems.h"

namespace ms::hf {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr std::string_view kPointerOfLfs = "version https://git-lfs";

struct DtypeRow {
  std::string_view name;
  std::int64_t bits;
  Dtype dtype;
};
constexpr DtypeRow kDtypes[] = {
    {"F32", 32, Dtype::f32},      {"BF16", 16, Dtype::bf16},        {"F16", 16, Dtype::f16},
    {"F64", 64, Dtype::other},    {"I64", 64, Dtype::other},        {"U64", 64, Dtype::other},
    {"I32", 32, Dtype::other},    {"U32", 32, Dtype::other},        {"I16", 16, Dtype::other},
    {"U16", 16, Dtype::other},    {"I8", 8, Dtype::other},          {"U8", 8, Dtype::other},
    {"C64", 64, Dtype::other},    {"BOOL", 8, Dtype::other},        {"F8_E4M3", 8, Dtype::other},
    {"F8_E5M2", 8, Dtype::other}, {"F8_E4M3FNUZ", 8, Dtype::other}, {"F8_E5M2FNUZ", 8, Dtype::other},
    {"F8_E8M0", 8, Dtype::other}, {"F6_E2M3", 6, Dtype::other},     {"F6_E3M2", 6, Dtype::other},
    {"F4", 4, Dtype::other}};

// Parses one file's header; every refusal names the file.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& path)
      : path_(path), file_(std::make_shared<const MappedFile>(path, Blame::user)), size_(file_->size_bytes()) {}

  std::map<std::string, TensorView> read() {
    const Json header = parse();
    std::map<std::string, TensorView> tensors;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        check_metadata(entry);
      } else {
        tensors.emplace(name, tensor(name, entry));
      }
    }
    check_coverage(tensors);
    return tensors;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw user_error("hf.safetensors", fmt::format("'{}' is not a sound safetensors file: {}", path_, why));
  }

  Json parse() {
    if (text(0, std::min(size_, kPointerOfLfs.size())) == kPointerOfLfs)
      refuse("it is a pointer of Git LFS in place of the weights, which 'git lfs pull' fetches");
    if (size_ < kLengthBytes) refuse(fmt::format("it has {}", plural(size_, "byte")));
    std::uint64_t length = 0;
    file_->read(0, std::as_writable_bytes(std::span(&length, 1)));
    if (length > kMaxHeaderBytes) refuse(fmt::format("its header would have {} bytes", length));
    if (length > size_ - kLengthBytes) refuse(fmt::format("a header of {} bytes in a file of {}", length, size_));
    const std::string text = this->text(kLengthBytes, length);
    if (!text.starts_with('{')) refuse("its header does not begin with '{'");
    data_begin_ = kLengthBytes + length;
    std::optional<std::string> twice;
    const JsonOptions options{.max_depth = kMaxDepth, .on_duplicate = [&](std::size_t depth, const std::string& key) {
                                if (depth == 1) twice = key;
                              }};
    std::string problem;
    std::optional<Json> header = Json::try_parse(text, options, &problem);
    if (!header) refuse("its header " + problem);
    if (!header->is_object()) refuse("its header is not a JSON object");
    if (twice) refuse(fmt::format("'{}' is there twice", plain_text(*twice, 200)));
    return std::move(*header);
  }

  std::string text(std::size_t at, std::size_t size) const {
    std::string bytes(size, '\0');
    file_->read(at, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  void check_metadata(const Json& metadata) const {
    const bool sound =
        metadata.is_object() && std::all_of(metadata.items().begin(), metadata.items().end(),
                                            [](const Json::Member& member) { return member.value.is_string(); });
    if (!sound) refuse("__metadata__ is not an object of strings");
  }

  TensorView tensor(const std::string& name, const Json& entry) const {
    const auto refuse_tensor = [&](std::string_view why) {
      refuse(fmt::format("tensor '{}': {}", plain_text(name, 200), why));
    };
    if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
        !entry.contains("data_offsets")) {
      refuse_tensor("not an object of dtype, shape and data_offsets");
    }
    const Json &dtype = entry.at("dtype"), &shape = entry.at("shape"), &offsets = entry.at("data_offsets");
    const auto row = dtype.is_string() ? std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                                      [&](const DtypeRow& r) { return dtype == r.name; })
                                       : std::end(kDtypes);
    if (row == std::end(kDtypes)) refuse_tensor(fmt::format("unknown dtype {}", shown(dtype, 40)));
    TensorView view{.dtype = row->dtype, .dtype_name = std::string(row->name), .shape = {}, .file = file_};

    std::int64_t bits = row->bits;  // of all elements; the shape counts elements, not the bytes that they share
    if (!shape.is_array()) refuse_tensor("the shape is not a list");
    for (const Json& dim : shape) {
      if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > INT64_MAX) {
        refuse_tensor(fmt::format("{} in the shape", shown(dim, 40)));
      }
      view.shape.push_back(dim.get<std::int64_t>());
      if (__builtin_mul_overflow(bits, view.shape.back(), &bits)) refuse_tensor("the shape overflows");
    }
    if (bits % 8 != 0) refuse_tensor(fmt::format("its shape takes {} bits, which are no whole bytes", bits));
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      refuse_tensor("data_offsets are not two numbers");
    }
    const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
    const std::size_t data_size = size_ - data_begin_;
    if (begin > end || end > data_size) {
      refuse_tensor(
          fmt::format("bytes {} to {} of {}{}", begin, end, data_size, begin > end ? "" : ": the file was cut"));
    }
    if (end - begin != static_cast<std::uint64_t>(bits / 8)) {
      refuse_tensor(fmt::format("{} bytes, but its shape takes {}", end - begin, bits / 8));
    }
    view.begin = data_begin_ + begin;
    view.size_bytes = end - begin;
    return view;
  }

  // No gap, no overlap, nothing behind the last one.
  void check_coverage(const std::map<std::string, TensorView>& tensors) const {
    std::vector<const std::pair<const std::string, TensorView>*> order;
    for (const auto& tensor : tensors) order.push_back(&tensor);
    const auto place = [](const auto* t) { return std::pair{t->second.begin, t->second.size_bytes}; };
    std::sort(order.begin(), order.end(), [&](const auto* a, const auto* b) { return place(a) < place(b); });
    std::size_t at = data_begin_;
    for (const auto* tensor : order) {
      const auto& [begin, size] = place(tensor);
      if (begin != at) {
        refuse(
            fmt::format("{} before tensor '{}'", begin < at ? "an overlap" : "a gap", plain_text(tensor->first, 200)));
      }
      at += size;
    }
    if (at != size_) refuse(fmt::format("{} behind the last tensor", plural(size_ - at, "byte")));
  }

  const std::string& path_;
  std::shared_ptr<const MappedFile> file_;
  std::size_t size_ = 0, data_begin_ = 0;
};

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// tensor -> file, of a sharded model.
std::map<std::string, std::string> read_index(const std::string& path) {
  Problems problems("hf.index", fmt::format("'{}' is not a sound index", path));
  const std::string content = read_text(path);
  std::string problem;
  const std::optional<Json> index = Json::try_parse(content, {.max_depth = kMaxDepth}, &problem);
  if (!index) problems.add("it " + problem);
  problems.throw_if_any();
  std::map<std::string, std::string> result;
  const Json* weight_map = index->find("weight_map");
  if (weight_map == nullptr || !weight_map->is_object()) {
    problems.add("weight_map is not there, or not an object");
  } else {
    for (const auto& [name, file] : weight_map->items()) {
      // A plain name: an index must not send us about the file system.
      const std::string text = file.is_string() ? file.get<std::string>() : "";
      if (text.empty() || text.front() == '.' || text.find('/') != std::string::npos ||
          !text.ends_with(".safetensors")) {
        problems.add(fmt::format("tensor '{}' is said to be in {}", plain_text(name, 200), shown(file, 80)));
      } else {
        result[name] = text;
      }
    }
  }
  problems.throw_if_any();
  return result;
}

// Whether there is an index of files beside model.safetensors.
bool names_other_files(const std::string& index) {
  if (!exists(index)) return false;
  const std::optional<Json> json = Json::try_parse(read_text(index), {.max_depth = kMaxDepth});
  const Json* const files = json ? json->find("weight_map") : nullptr;
  if (files == nullptr || !files->is_object()) return false;
  return std::ranges::any_of(files->items(), [](const auto& item) { return item.value != kModelFile; });
}

}  // namespace

std::vector<std::byte> TensorView::read() const {
  std::vector<std::byte> bytes(size_bytes);
  read(0, bytes);
  return bytes;
}

TensorFile::TensorFile(const std::string& path) : tensors_(HeaderReader(path).read()) {}

TensorSet::TensorSet(const std::string& dir) {
  const std::string single = dir + "/" + std::string(kModelFile), index = dir + "/" + std::string(kIndexFile);
  if (exists(single)) {
    if (names_other_files(index)) {
      log::warn("hf", "'{}' has both {} and {}: {} is read, as transformers does; move it away to read the others", dir,
                kModelFile, kIndexFile, kModelFile);
    }
    tensors_ = TensorFile(single).tensors();
    return;
  }
  if (!exists(index)) {
    throw user_error("hf.model", fmt::format("'{}' has neither {} nor {}", dir, kModelFile, kIndexFile),
                     "models in other formats are converted by transformers: save_pretrained(..., "
                     "safe_serialization=True)");
  }
  const std::map<std::string, std::string> named = read_index(index);
  std::set<std::string> files;
  for (const auto& [tensor, file] : named) files.insert(file);
  Problems problems("hf.index", fmt::format("'{}' and the files do not agree", index));
  for (const std::string& file : files) {
    const TensorFile one(dir + "/" + file);
    for (const auto& [name, view] : one.tensors()) {
      const auto place = named.find(name);
      if (place == named.end() || place->second != file) {
        problems.add(fmt::format("'{}' in {} is not in the index", plain_text(name, 200), file));
      } else {
        tensors_.emplace(name, view);
      }
    }
  }
  for (const auto& [name, file] : named) {
    if (!tensors_.contains(name)) problems.add(fmt::format("'{}' is not in {}", plain_text(name, 200), file));
  }
  problems.throw_if_any();
}

}  // namespace ms::hf
