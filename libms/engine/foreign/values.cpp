#include "foreign/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "foreign/source.h"

namespace ms::foreign {
namespace {

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

}  // namespace

Values values_of(const Checkpoint& checkpoint) { return ValuesReader(checkpoint).read(); }

}  // namespace ms::foreign
