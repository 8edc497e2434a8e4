// Files of torch.save, written without torch: pieces of pickles, and the archive around them.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unpack/zip.h"

namespace ms::test {

inline std::string little_endian(std::uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes += i < 8 ? static_cast<char>(value >> (8 * i)) : '\0';
  return bytes;
}

// Parts of a pickle.
inline std::string pickled(const std::string& text) { return "X" + little_endian(text.size(), 4) + text; }
inline std::string pickled(std::int64_t number) { return "J" + little_endian(static_cast<std::uint64_t>(number), 4); }
inline std::string pickled_tuple(const std::vector<std::string>& items) {
  std::string bytes = "(";
  for (const std::string& item : items) bytes += item;
  return bytes + "t";
}
inline std::string pickled_sizes(const std::vector<std::int64_t>& sizes) {
  std::vector<std::string> items;
  for (const std::int64_t size : sizes) items.push_back(pickled(size));
  return pickled_tuple(items);
}
inline std::string pickled_dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string bytes = "}(";
  for (const auto& [key, value] : items) bytes += pickled(key) + value;
  return bytes + "u";
}
inline std::string pickled_global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string pickled_call(const std::string& module, const std::string& name,
                                const std::vector<std::string>& arguments) {
  return pickled_global(module, name) + pickled_tuple(arguments) + "R";
}

class TorchFileWriter {
 public:
  // Adds a storage of floats; returns the reference to it.
  std::string storage(const std::vector<float>& values) {
    std::string data(values.size() * sizeof(float), '\0');
    if (!data.empty()) std::memcpy(data.data(), values.data(), data.size());
    const std::string key = std::to_string(storages_++);
    members_.emplace_back("archive/data/" + key, std::move(data));
    return pickled_tuple({pickled("storage"), pickled_global("torch", "FloatStorage"), pickled(key), pickled("cpu"),
                          pickled(static_cast<std::int64_t>(values.size()))}) +
           "Q";
  }
  // A tensor in row-major order; `more` are arguments behind the hooks.
  std::string tensor(const std::vector<float>& values, const std::vector<std::int64_t>& shape,
                     const std::vector<std::string>& more = {}) {
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
    std::vector<std::string> arguments{
        storage(values),        pickled(0), pickled_sizes(shape),
        pickled_sizes(strides), "\x89",     pickled_call("collections", "OrderedDict", {})};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return pickled_call("torch._utils", "_rebuild_tensor_v2", arguments);
  }
  // The file whose object is `root`.
  std::string file(const std::string& root) const {
    auto members = members_;
    members.emplace_back("archive/data.pkl", "\x80\x02" + root + ".");
    std::string bytes, directory;
    for (const auto& [name, data] : members) {
      const auto crc = unpack::zip_crc(0, std::as_bytes(std::span(data)));
      const std::string common = little_endian(0, 2) + little_endian(0, 2) + little_endian(0, 4) +
                                 little_endian(crc, 4) + little_endian(data.size(), 4) + little_endian(data.size(), 4) +
                                 little_endian(name.size(), 2) + little_endian(0, 2);
      directory +=
          "PK\1\2" + little_endian(0, 4) + common + little_endian(0, 10) + little_endian(bytes.size(), 4) + name;
      bytes += "PK\3\4" + little_endian(0, 2) + common + name + data;
    }
    const std::string end = "PK\5\6" + little_endian(0, 4) + little_endian(members.size(), 2) +
                            little_endian(members.size(), 2) + little_endian(directory.size(), 4) +
                            little_endian(bytes.size(), 4) + little_endian(0, 2);
    return bytes + directory + end;
  }

 private:
  std::vector<std::pair<std::string, std::string>> members_;
  int storages_ = 0;
};

}  // namespace ms::test
