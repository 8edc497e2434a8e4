#include "foreign/diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "foreign/checkpoint.h"
#include "foreign/read.h"
#include "foreign/source.h"

namespace ms::foreign {
namespace {

// Values of a checkpoint of another program beside its tensors: steps, settings of the optimizer, states of random
// number generators.

struct Values {
  // By name; long ones as their beginning and a hash. Of a tensor in an object: type, shape and CRC-32.
  std::map<std::string, std::string> texts;
  std::vector<Problem> unread;
};

constexpr std::int64_t kReadBytes = std::int64_t{1} << 20;

std::uint32_t crc_of(const Source& source, std::int64_t at, std::int64_t size_bytes) {
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(kReadBytes, size_bytes)));
  std::uint32_t crc = 0;
  for (std::int64_t done = 0; done < size_bytes; done += std::ssize(piece)) {
    piece.resize(static_cast<std::size_t>(std::min(kReadBytes, size_bytes - done)));
    source.read(at + done, piece);
    crc = unpack::zip_crc(crc, piece);
  }
  return crc;
}

class ValuesReader {
 public:
  explicit ValuesReader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  Values read() {
    for (const auto& [name, item] : checkpoint_.objects) take(name, item, true);
    for (const auto& [prefix, item] : checkpoint_.archives) take(prefix, item, false);
    return std::move(result_);
  }

 private:
  void add(const std::string& name, const std::string& text) {
    std::string& to = result_.texts[name];
    to += (to.empty() ? "" : ", ") + text;  // keys that are not text have one name
  }

  void take(const std::string& name, std::uint32_t number, bool is_object) {
    const Item& item = checkpoint_.items[number];
    const std::string shown = plain_text(name.empty() ? checkpoint_.path : name, 200);
    if (!item.transform.empty()) {
      result_.unread.push_back({"transform", fmt::format("'{}' was saved through '{}', which is not read", shown,
                                                         plain_text(item.transform, 80))});
      return;
    }
    if (item.size_bytes == 0) return;
    const Source source(checkpoint_.path_of(item.file));
    try {
      const TorchFile file = read_torch_file(source.part(item.begin), item.size_bytes);
      const std::string before = is_object ? name + "." : name;
      const auto full = [&](const std::string& leaf) {
        return leaf.empty() ? before.substr(0, before.size() - before.ends_with('.')) : before + leaf;
      };
      for (const auto& [leaf, text] : file.leaves) add(full(leaf), text);
      if (!is_object) return;  // its tensors are those of the checkpoint
      for (const Problem& unread : file.unread) result_.unread.push_back({unread.code, shown + ": " + unread.text});
      for (const SavedTensor& tensor : file.tensors) add(full(tensor.name), text_of(source, item, file, tensor));
    } catch (const Error& error) {
      if (error.blame() != Blame::user) throw;
      result_.unread.push_back({"pickle", fmt::format("'{}' is {}", shown, error.message())});
    }
  }

  // One that is not dense is equal only to one of the same storage and strides.
  static std::string text_of(const Source& source, const Item& item, const TorchFile& file, const SavedTensor& tensor) {
    const unpack::ZipMember& member = file.members[tensor.member];
    std::int64_t begin = item.begin + member.begin, size_bytes = member.size_bytes;
    std::string view;
    if (tensor.dense()) {
      begin += tensor.first * tensor.dtype->size_bytes;
      size_bytes = tensor.dtype->size_bytes;
      for (const std::int64_t size : tensor.shape) size_bytes *= size;  // inside the storage, as read_torch_file() saw
    } else {
      view = fmt::format(" from {} by [{}]", tensor.first, fmt::join(tensor.strides, ", "));
    }
    return fmt::format("{} [{}]{}, CRC-32 {:08x}", tensor.dtype->name, fmt::join(tensor.shape, ", "), view,
                       crc_of(source, begin, size_bytes));
  }

  const Checkpoint& checkpoint_;
  Values result_;
};

// Error("ckpt.read", storage); Error("ckpt.damaged", storage).
Values values_of(const Checkpoint& checkpoint) { return ValuesReader(checkpoint).read(); }

constexpr std::int64_t kCompareBytes = std::int64_t{4} << 20;
constexpr std::size_t kShownUnmatched = 20;

double number_at(const Dtype& dtype, const std::byte* at) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, static_cast<std::size_t>(dtype.size_bytes));
  return std::bit_cast<float>(dtype.size_bytes == 2 ? bits << 16 : bits);
}

void compare(const Dtype& dtype, std::span<const std::byte> a, std::span<const std::byte> b, TensorDiff& row) {
  if (std::memcmp(a.data(), b.data(), a.size()) == 0) return;
  const auto element = static_cast<std::size_t>(dtype.size_bytes);
  const bool is_number = dtype.name == "float32" || dtype.name == "bfloat16";
  for (std::size_t at = 0; at < a.size(); at += element) {
    if (std::memcmp(&a[at], &b[at], element) == 0) continue;
    ++row.differing;
    if (!is_number || std::isnan(row.max_abs)) continue;
    const double apart = std::abs(number_at(dtype, &a[at]) - number_at(dtype, &b[at]));
    row.max_abs = std::isnan(apart) ? apart : std::max(row.max_abs, apart);
  }
}

std::string shown_value(const std::string& text) { return text.empty() ? "''" : text; }

std::string form_of(const Tensor& tensor) {
  return fmt::format("{} [{}]", tensor.dtype == nullptr ? "?" : tensor.dtype->name, fmt::join(tensor.shape, ", "));
}

void compare_values(const Checkpoint& a, const Checkpoint& b, Diff& result) {
  const Values of_a = values_of(a), of_b = values_of(b);
  std::map<std::string, std::pair<std::string, std::string>> by_name;
  for (const auto& [name, text] : of_a.texts) by_name[name].first = shown_value(text);
  for (const auto& [name, text] : of_b.texts) by_name[name].second = shown_value(text);
  result.num_values = by_name.size();
  for (const auto& [name, pair] : by_name) {
    if (pair.first != pair.second) result.values.push_back({name, pair.first, pair.second});
  }
  for (const Values* one : {&of_a, &of_b})
    result.unread.insert(result.unread.end(), one->unread.begin(), one->unread.end());
}

// The lines of what one of the two has, or has otherwise.
std::string unmatched_lines(const std::vector<Unmatched>& rows, bool all) {
  std::string text;
  for (std::size_t i = 0; i < rows.size() && (all || i < kShownUnmatched); ++i)
    text += fmt::format("  {:<40} {} | {}\n", plain_text(rows[i].name, 200), rows[i].a.empty() ? "(none)" : rows[i].a,
                        rows[i].b.empty() ? "(none)" : rows[i].b);
  if (!all && rows.size() > kShownUnmatched) text += fmt::format("  and {} more\n", rows.size() - kShownUnmatched);
  return text;
}

Json unmatched_json(const std::vector<Unmatched>& rows) {
  Json json = Json::array();
  for (const Unmatched& row : rows) json.push_back({{"name", row.name}, {"a", row.a}, {"b", row.b}});
  return json;
}

}  // namespace

bool Diff::equal() const {
  return unmatched.empty() && std::ranges::all_of(tensors, [](const TensorDiff& row) { return row.differing == 0; });
}

Diff diff(const Checkpoint& a, const Checkpoint& b, const std::function<void(std::int64_t)>& progress) {
  std::map<std::string, std::pair<const Tensor*, const Tensor*>> by_name;
  for (const Tensor& tensor : a.tensors) by_name[tensor.name].first = &tensor;
  for (const Tensor& tensor : b.tensors) by_name[tensor.name].second = &tensor;
  Diff result;
  for (const Checkpoint* one : {&a, &b})
    result.unread.insert(result.unread.end(), one->unread.begin(), one->unread.end());
  compare_values(a, b, result);
  std::int64_t done = 0;
  std::vector<std::byte> of_a, of_b;
  for (const auto& [name, pair] : by_name) {
    const auto [left, right] = pair;
    const std::string form_a = left == nullptr ? "" : form_of(*left), form_b = right == nullptr ? "" : form_of(*right);
    if (form_a != form_b) {
      result.unmatched.push_back({name, form_a, form_b});
      continue;
    }
    TensorReader read_a(a, *left), read_b(b, *right);
    TensorDiff row{.name = name, .elements = read_a.size_bytes() / left->dtype->size_bytes};
    for (std::int64_t at = 0; at < read_a.size_bytes(); at += kCompareBytes) {
      of_a.resize(static_cast<std::size_t>(std::min(kCompareBytes, read_a.size_bytes() - at)));
      of_b.resize(of_a.size());
      read_a.read(at, of_a);
      read_b.read(at, of_b);
      compare(*left->dtype, of_a, of_b, row);
      progress(done += std::ssize(of_a));
    }
    result.tensors.push_back(std::move(row));
  }
  return result;
}

std::string diff_text(const Checkpoint& a, const Checkpoint& b, const Diff& diff, bool all) {
  std::string text = fmt::format("a: {}\nb: {}\n", a.path, b.path) + unmatched_lines(diff.unmatched, all);
  TextTable table({{"tensor"}, {"elements", Align::right}, {"differing", Align::right}, {"max abs", Align::right}});
  std::size_t differing = 0;
  for (const TensorDiff& row : diff.tensors) {
    if (row.differing > 0) ++differing;
    if (row.differing > 0 || all)
      table.row({plain_text(row.name, 200), std::to_string(row.elements),
                 row.differing == 0 ? "equal" : std::to_string(row.differing),
                 row.differing == 0 ? "" : fmt::format("{:.3e}", row.max_abs)});
  }
  if (differing > 0 || (all && !diff.tensors.empty())) text += table.str();
  for (std::size_t i = 0; i < diff.unread.size() && (all || i < kShownUnmatched); ++i)
    text += fmt::format("  not read: {}\n", plain_text(diff.unread[i].text, 1000));
  if (diff.num_values > 0)
    text += fmt::format("{} of {} values that are not tensors equal\n", diff.num_values - diff.values.size(),
                        diff.num_values);
  text += unmatched_lines(diff.values, all);
  return text + fmt::format("{} of {} tensors equal, {} in one or of another form\n", diff.tensors.size() - differing,
                            diff.tensors.size(), diff.unmatched.size());
}

std::string diff_json(const Checkpoint& a, const Checkpoint& b, const Diff& diff) {
  Json tensors = Json::array();
  for (const TensorDiff& row : diff.tensors)
    tensors.push_back({{"name", row.name},
                       {"elements", row.elements},
                       {"differing", row.differing},
                       {"max_abs", std::isfinite(row.max_abs) ? Json(row.max_abs) : Json(nullptr)}});
  Json unread = Json::array();
  for (const Problem& problem : diff.unread) unread.push_back({{"code", problem.code}, {"text", problem.text}});
  return Json{{"schema", 1},
              {"a", a.path},
              {"b", b.path},
              {"equal", diff.equal()},
              {"tensors", std::move(tensors)},
              {"unmatched", unmatched_json(diff.unmatched)},
              {"num_values", diff.num_values},
              {"values", unmatched_json(diff.values)},
              {"unread", std::move(unread)}}
             .dump(2) +
         "\n";
}

}  // namespace ms::foreign
