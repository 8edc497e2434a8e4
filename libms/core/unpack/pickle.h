// Reads Python pickles as data. Nothing is imported, called or built: the classes and functions that a pickle names
// stay names, and what they were to make stays their arguments. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ms::unpack {

// A pickle that is larger than kMaxPickleBytes is refused: dumps have some hundred bytes an entry. So is one whose
// values take more memory, which may be 32 times its size, or whose shared values grow to more text.
inline constexpr std::size_t kMaxPickleBytes = std::size_t{128} << 20;
inline constexpr std::size_t kMaxPickleMemoryBytes = std::size_t{512} << 20;
inline constexpr std::size_t kMaxPickledJsonBytes = std::size_t{512} << 20;

// Returns whether bytes that begin like this are a pickle of protocol 2 to 5.
bool is_pickle(std::string_view beginning);

// A value of the pickle; text is of the pickle itself. Tuples and sets are lists.
struct PickledList {
  std::vector<std::uint32_t> items = {};
};
struct PickledDict {
  std::vector<std::uint32_t> items = {};  // key, value, key, value ...
};
struct PickledGlobal {  // a class or function by its name
  std::uint32_t module = 0, name = 0;
};
struct PickledObject {  // callable, arguments, state; then what it holds as a dict: key, value ...
  std::vector<std::uint32_t> items = {};
};
struct PickledReference {  // to what is kept outside the pickle: a persistent id
  std::uint32_t id = 0;
};
using PickledNode = std::variant<std::monostate, bool, std::int64_t, double, std::string_view, PickledList, PickledDict,
                                 PickledGlobal, PickledObject, PickledReference>;
static_assert(sizeof(PickledNode) == 32);
using PickledNodes = std::deque<PickledNode>;  // which grows without a copy

// One value of a pickle. What is asked of a value of another kind is absent or empty.
class PickleValue {
 public:
  PickleValue() = default;  // None
  PickleValue(const PickledNodes* nodes, std::uint32_t id) : nodes_(nodes), id_(id) {}

  bool operator==(const PickleValue&) const = default;  // the same value, not an equal one

  bool is_none() const { return node() == nullptr || std::holds_alternative<std::monostate>(*node()); }
  std::optional<bool> boolean() const { return get<bool>(); }
  std::optional<std::int64_t> integer() const { return get<std::int64_t>(); }
  std::optional<double> real() const { return get<double>(); }
  std::optional<std::string_view> text() const { return get<std::string_view>(); }
  bool is_list() const { return node() != nullptr && std::holds_alternative<PickledList>(*node()); }
  bool is_dict() const;      // also one of a class of its own, such as collections.OrderedDict
  std::size_t size() const;  // items of a list, or pairs of a dict
  PickleValue item(std::size_t i) const;
  std::vector<PickleValue> items() const;
  PickleValue key(std::size_t i) const;
  PickleValue value(std::size_t i) const;
  // Looks among the last 1,000 keys of a dict; None where they have no such key.
  PickleValue find(std::string_view key) const;
  std::string global() const;     // "torch.float32"; of an object, of what would make it
  PickleValue arguments() const;  // of an object
  PickleValue state() const;      // of an object
  PickleValue reference() const;  // the persistent id

 private:
  const PickledNode* node() const { return nodes_ == nullptr ? nullptr : &(*nodes_)[id_]; }
  template <class T>
  std::optional<T> get() const {
    const T* value = node() == nullptr ? nullptr : std::get_if<T>(node());
    return value == nullptr ? std::nullopt : std::optional<T>(*value);
  }
  PickleValue at(std::uint32_t id) const { return {nodes_, id}; }
  const std::vector<std::uint32_t>* all(std::size_t& first) const;  // of a container, from its first item on
  PickleValue part(std::size_t i) const;

  const PickledNodes* nodes_ = nullptr;
  std::uint32_t id_ = 0;
};

// A pickle with its objects. `bytes` must outlive it.
class Pickle {
 public:
  // Error("data.pickle", user): it is damaged or ends early. Error("data.unread", user): it takes more memory than
  // this.
  explicit Pickle(std::string_view bytes, std::size_t max_memory_bytes = kMaxPickleMemoryBytes);
  PickleValue root() const { return {nodes_.get(), root_}; }
  std::size_t size_bytes() const { return size_bytes_; }  // of the pickle in `bytes`

 private:
  std::unique_ptr<PickledNodes> nodes_;
  std::uint32_t root_ = 0;
  std::size_t size_bytes_ = 0;
};

struct PickledJson {
  std::string text;         // one JSON value; keys that are numbers become text
  bool is_cut_off = false;  // the pickle ends early: `text` has what came before
};
// Converts a pickle of plain data: None, booleans, numbers, text, lists, tuples and dicts, also shared by the memo.
// PyTorch pickles its Flight Recorder dumps so. A pickle of nothing but the bytes of another pickle, or of a JSON
// document, stands for that: people pickle what _dump_nccl_trace() returns. Throws Error("data.pickle", user) if the
// pickle is damaged, nests deeper than 64 containers, or holds anything but plain data; the text names the opcode, what
// it would have imported, and the byte.
PickledJson pickle_to_json(std::string_view pickle, std::size_t max_json_bytes = kMaxPickledJsonBytes);

}  // namespace ms::unpack
