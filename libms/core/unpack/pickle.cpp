#include "unpack/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "unpack/pickle_json.h"

namespace ms::unpack {
namespace {

// A byte of the pickle can be a value, which takes 32 bytes: their memory is bounded.
class Machine {
  static constexpr std::uint32_t kNoNode = 0xffffffff;

 public:
  struct Limits {
    std::size_t json_bytes = kMaxPickledJsonBytes, memory_bytes = kMaxPickleMemoryBytes;
    bool objects = false;
  };
  Machine(std::string_view bytes, Limits limits) : bytes_(bytes), limits_(limits) {}

  // Returns the text that is all of the pickle's value; empty: it is another value.
  std::string_view run() {
    while (!stopped_ && !cut_) step();
    if (cut_) close_containers();
    if (stack_.empty()) refuse("has no value");
    const auto* const text = std::get_if<std::string_view>(&nodes_[stack_.back()]);
    return text == nullptr ? std::string_view() : *text;
  }

  // All values of a pickle that does not end early, and the last byte of it.
  PickledNodes take_nodes() {
    if (cut_) refuse("ends early");
    return std::move(nodes_);
  }
  std::uint32_t root() const { return stack_.back(); }
  std::size_t at() const { return at_; }

  PickledJson json() {
    return {.text = json_of_pickle(nodes_, stack_.back(), limits_.json_bytes, opcode_at_), .is_cut_off = cut_};
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const { refuse_pickle(what, opcode_at_); }

  // Takes the next bytes; sets cut_ and returns zeros if the pickle ends before.
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) {
      cut_ = true;
      at_ = bytes_.size();
      return {};
    }
    const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(count));
    at_ += taken.size();
    return taken;
  }
  std::uint64_t take_unsigned(int count) {
    const std::string_view taken = take(static_cast<std::uint64_t>(count));
    std::uint64_t value = 0;
    for (std::size_t i = taken.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(taken[i]);
    return value;
  }

  std::uint32_t add(PickledNode node) {
    if (cut_) return 0;
    nodes_.push_back(std::move(node));
    stack_.push_back(static_cast<std::uint32_t>(nodes_.size() - 1));
    return stack_.back();
  }
  void add_integer(std::int64_t value) { add(value); }
  void add_list(std::vector<std::uint32_t> items) {
    places_ += items.size();
    add(PickledList{std::move(items)});
  }
  // Adds a little-endian two's complement number of any length; one beyond 64 bits becomes a real.
  void add_long(std::uint64_t size) {
    const std::string_view digits = take(size);
    if (cut_) return;
    if (digits.size() > 64) refuse("has a number beyond all measure");
    const bool negative = !digits.empty() && (digits.back() & '\x80') != 0;
    if (digits.size() <= 8) {
      std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
      for (std::size_t i = digits.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(digits[i]);
      return add_integer(static_cast<std::int64_t>(value));
    }
    double value = negative ? -std::ldexp(1.0, static_cast<int>(8 * digits.size())) : 0.0;
    for (std::size_t i = 0; i < digits.size(); ++i)
      value += std::ldexp(static_cast<double>(static_cast<unsigned char>(digits[i])), static_cast<int>(8 * i));
    add(value);
  }

  std::uint32_t pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) refuse("takes a value where there is none");
    const std::uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<std::uint32_t> pop_to_mark() {
    if (marks_.empty()) refuse("closes a container that was never opened");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<std::uint32_t> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }
  std::vector<std::uint32_t> pop_last(std::size_t count) {
    std::vector<std::uint32_t> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }
  static std::vector<std::uint32_t>* items_of(PickledNode& node) {
    if (PickledList* const list = std::get_if<PickledList>(&node)) return &list->items;
    if (PickledObject* const object = std::get_if<PickledObject>(&node)) return &object->items;
    PickledDict* const dict = std::get_if<PickledDict>(&node);
    return dict == nullptr ? nullptr : &dict->items;
  }
  // Appends to the container on top of the stack.
  template <class Container>
  void extend(const std::vector<std::uint32_t>& items) {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back()) ||
        (!std::holds_alternative<Container>(nodes_[stack_.back()]) &&
         !std::holds_alternative<PickledObject>(nodes_[stack_.back()])))
      refuse("adds to what is no container");
    if (std::is_same_v<Container, PickledDict> && items.size() % 2 != 0) refuse("has a key without a value");
    places_ += items.size();
    std::vector<std::uint32_t>& to = *items_of(nodes_[stack_.back()]);
    to.insert(to.end(), items.begin(), items.end());
  }

  // Adds what came of a container before the cut. In a dict, what stands in place of a key and is none belongs to the
  // list before it: a list of one item takes it when it is whole.
  void append_open(PickledNode& container, const std::vector<std::uint32_t>& items) {
    if (PickledList* const list = std::get_if<PickledList>(&container)) {
      list->items.insert(list->items.end(), items.begin(), items.end());
      return;
    }
    PickledDict* const dict = std::get_if<PickledDict>(&container);
    if (dict == nullptr) return;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (is_pickle_key(nodes_[items[i]])) {
        if (i + 1 < items.size()) dict->items.insert(dict->items.end(), {items[i], items[i + 1]});
        ++i;
      } else if (PickledList* const last =
                     dict->items.empty() ? nullptr : std::get_if<PickledList>(&nodes_[dict->items.back()])) {
        last->items.push_back(items[i]);
      }
    }
  }

  void close_containers() {
    if (stack_.empty()) return;
    if (marks_.empty() || marks_.front() > 1) marks_.insert(marks_.begin(), 1);  // of what the outermost one holds
    while (!marks_.empty()) {
      const std::vector<std::uint32_t> items = pop_to_mark();
      if (!stack_.empty()) append_open(nodes_[stack_.back()], items);
    }
    stack_.resize(std::min<std::size_t>(stack_.size(), 1));
  }

  void step();
  [[noreturn]] void refuse_opcode(std::uint8_t code);

  // The opcodes. Each is passed its argument, a little-endian number.
  using Argument = std::uint64_t;
  void skip(Argument) {}
  void stop(Argument) { stopped_ = true; }
  void mark(Argument) { marks_.push_back(stack_.size()); }
  void drop(Argument) { pop(); }
  void drop_to_mark(Argument) { pop_to_mark(); }
  void duplicate(Argument) {
    const std::uint32_t top = pop();
    stack_.insert(stack_.end(), {top, top});
  }
  void none(Argument) { add(std::monostate{}); }
  void yes(Argument) { add(true); }
  void no(Argument) { add(false); }
  void integer(Argument value) { add_integer(static_cast<std::int64_t>(value)); }
  void signed_integer(Argument value) { add_integer(static_cast<std::int32_t>(value)); }
  void real(Argument value) { add(std::bit_cast<double>(__builtin_bswap64(value))); }  // the only big-endian one
  void text(Argument size) { add(take(size)); }
  void empty_list(Argument) { add(PickledList{}); }
  void empty_dict(Argument) { add(PickledDict{}); }
  void list(Argument) { add_list(pop_to_mark()); }
  void tuple1(Argument) { add_list(pop_last(1)); }
  void tuple2(Argument) { add_list(pop_last(2)); }
  void tuple3(Argument) { add_list(pop_last(3)); }
  void dict(Argument) {
    const std::vector<std::uint32_t> items = pop_to_mark();
    add(PickledDict{});
    extend<PickledDict>(items);
  }
  void append(Argument) { extend<PickledList>(pop_last(1)); }
  void appends(Argument) { extend<PickledList>(pop_to_mark()); }
  void set_item(Argument) { extend<PickledDict>(pop_last(2)); }
  void set_items(Argument) { extend<PickledDict>(pop_to_mark()); }
  void put(Argument key) {
    if (stack_.empty()) refuse("remembers a value where there is none");
    if (key > bytes_.size()) refuse("remembers more values than it has");
    if (key >= memo_.size()) memo_.resize(static_cast<std::size_t>(key) + 1, kNoNode);
    std::uint32_t& place = memo_[static_cast<std::size_t>(key)];
    if (place == kNoNode) ++remembered_;
    place = stack_.back();
  }
  void memoize(Argument) { put(remembered_); }
  void get(Argument key) {
    if (key >= memo_.size() || memo_[static_cast<std::size_t>(key)] == kNoNode)
      refuse("recalls a value that was never remembered");
    stack_.push_back(memo_[static_cast<std::size_t>(key)]);
  }

  // Those of objects.
  void global(Argument) {  // the module and the name, a line each
    const std::size_t module_end = bytes_.find('\n', at_);
    const std::size_t name_end = module_end == std::string_view::npos ? module_end : bytes_.find('\n', module_end + 1);
    if (name_end == std::string_view::npos) {
      cut_ = true;
      return;
    }
    add(bytes_.substr(at_, module_end - at_));
    add(bytes_.substr(module_end + 1, name_end - module_end - 1));
    at_ = name_end + 1;
    stack_global(0);
  }
  void stack_global(Argument) {
    const std::uint32_t name = pop(), module = pop();
    add(PickledGlobal{.module = module, .name = name});
  }
  void reduce(Argument) {
    const std::uint32_t arguments = pop(), callable = pop(), none = nothing();
    if (!std::holds_alternative<PickledGlobal>(nodes_[callable]) &&
        !std::holds_alternative<PickledObject>(nodes_[callable]))  // dill and cloudpickle make classes by calls
      refuse("calls what is neither a function nor a class");
    places_ += 3;
    add(PickledObject{{callable, arguments, none}});
  }
  void new_object_with_names(Argument) {
    pop();  // arguments by name
    reduce(0);
  }
  void build(Argument) {
    const std::uint32_t state = pop(), object = pop();
    stack_.push_back(object);
    if (PickledObject* const built = std::get_if<PickledObject>(&nodes_[object])) built->items[2] = state;
  }
  void reference(Argument) { add(PickledReference{pop()}); }
  std::uint32_t nothing() {
    if (!none_) none_ = static_cast<std::uint32_t>(nodes_.size()), nodes_.emplace_back();
    return *none_;
  }

  struct Opcode {
    std::uint8_t code;
    int argument_bytes;
    void (Machine::*run)(Argument);
    bool of_objects = false;
  };
  static const std::array<Opcode, 53> kOpcodes;

  const std::string_view bytes_;
  const Limits limits_;
  std::size_t at_ = 0, opcode_at_ = 0;
  bool stopped_ = false, cut_ = false;
  PickledNodes nodes_;
  std::optional<std::uint32_t> none_;  // the None that objects without a state share
  std::vector<std::uint32_t> stack_;   // in nodes_
  std::vector<std::size_t> marks_;     // heights of the stack
  std::vector<std::uint32_t> memo_;    // by key, in nodes_
  std::size_t remembered_ = 0;         // keys
  std::size_t places_ = 0;             // of values in containers
};

// Those of protocols 2 to 5; Python's pickletools documents them.
const std::array<Machine::Opcode, 53> Machine::kOpcodes{{
    {0x80, 1, &Machine::skip},  // the protocol
    {0x95, 8, &Machine::skip},  // a frame
    {'.', 0, &Machine::stop},
    {'(', 0, &Machine::mark},
    {'0', 0, &Machine::drop},
    {'1', 0, &Machine::drop_to_mark},
    {'2', 0, &Machine::duplicate},
    {'N', 0, &Machine::none},
    {0x88, 0, &Machine::yes},
    {0x89, 0, &Machine::no},
    {'K', 1, &Machine::integer},
    {'M', 2, &Machine::integer},
    {'J', 4, &Machine::signed_integer},
    {0x8a, 1, &Machine::add_long},
    {0x8b, 4, &Machine::add_long},
    {'G', 8, &Machine::real},
    {'U', 1, &Machine::text},
    {'T', 4, &Machine::text},
    {'C', 1, &Machine::text},
    {'B', 4, &Machine::text},
    {0x8e, 8, &Machine::text},
    {0x8c, 1, &Machine::text},
    {'X', 4, &Machine::text},
    {0x8d, 8, &Machine::text},
    {']', 0, &Machine::empty_list},
    {')', 0, &Machine::empty_list},
    {'}', 0, &Machine::empty_dict},
    {'l', 0, &Machine::list},
    {'t', 0, &Machine::list},
    {0x85, 0, &Machine::tuple1},
    {0x86, 0, &Machine::tuple2},
    {0x87, 0, &Machine::tuple3},
    {'d', 0, &Machine::dict},
    {'a', 0, &Machine::append},
    {'e', 0, &Machine::appends},
    {'s', 0, &Machine::set_item},
    {'u', 0, &Machine::set_items},
    {'q', 1, &Machine::put},
    {'r', 4, &Machine::put},
    {0x94, 0, &Machine::memoize},
    {'h', 1, &Machine::get},
    {'j', 4, &Machine::get},
    {0x96, 8, &Machine::text},              // a bytearray
    {0x8f, 0, &Machine::empty_list, true},  // a set
    {0x90, 0, &Machine::appends, true},
    {0x91, 0, &Machine::list, true},
    {'c', 0, &Machine::global, true},
    {0x93, 0, &Machine::stack_global, true},
    {'R', 0, &Machine::reduce, true},
    {0x81, 0, &Machine::reduce, true},  // a new object
    {0x92, 0, &Machine::new_object_with_names, true},
    {'b', 0, &Machine::build, true},
    {'Q', 0, &Machine::reference, true},
}};

void Machine::step() {
  opcode_at_ = at_;
  // Vectors grow to twice what they hold.
  const std::size_t held = stack_.size() + marks_.size() * 2 + memo_.size() + places_;
  if (nodes_.size() * sizeof(PickledNode) + held * 2 * sizeof(std::uint32_t) > limits_.memory_bytes)
    throw user_error("data.unread", fmt::format("a Python pickle that takes more than {} at byte {}",
                                                format_size(static_cast<double>(limits_.memory_bytes)), opcode_at_));
  const auto code = static_cast<std::uint8_t>(take_unsigned(1));
  if (cut_) return;
  const auto* const opcode = std::ranges::find(kOpcodes, code, &Opcode::code);
  if (opcode == kOpcodes.end() || (opcode->of_objects && !limits_.objects)) refuse_opcode(code);
  const Argument argument = take_unsigned(opcode->argument_bytes);
  if (!cut_) (this->*opcode->run)(argument);
}

void Machine::refuse_opcode(std::uint8_t code) {
  if (code == 'c') {  // GLOBAL: the module and the name, a line each
    const std::size_t module_end = bytes_.find('\n', at_);
    const std::size_t name_end = module_end == std::string_view::npos ? module_end : bytes_.find('\n', module_end + 1);
    if (name_end != std::string_view::npos) {
      const std::string module(bytes_.substr(at_, module_end - at_));
      const std::string name(bytes_.substr(module_end + 1, name_end - module_end - 1));
      refuse(fmt::format("would import {}, which only Python may do,", plain_text(module + "." + name, 80)));
    }
  }
  refuse(fmt::format("is more than plain data (opcode 0x{:02x}), which only Python may read,", code));
}

}  // namespace

Pickle::Pickle(std::string_view bytes, std::size_t max_memory_bytes) {
  Machine machine(bytes, {.memory_bytes = max_memory_bytes, .objects = true});
  machine.run();
  nodes_ = std::make_unique<PickledNodes>(machine.take_nodes());
  root_ = machine.root();
  size_bytes_ = machine.at();
}

bool is_pickle(std::string_view beginning) {
  return beginning.size() > 2 && beginning[0] == '\x80' && beginning[1] >= 2 && beginning[1] <= 5;
}

PickledJson pickle_to_json(std::string_view pickle, std::size_t max_json_bytes) {
  if (pickle.size() > kMaxPickleBytes)
    throw user_error("data.pickle", fmt::format("a Python pickle of more than {}, which no dump is",
                                                format_size(static_cast<double>(kMaxPickleBytes))));
  constexpr int kMostNested = 4;
  for (int nested = 0;; ++nested) {
    Machine machine(pickle, {.json_bytes = max_json_bytes});
    const std::string_view text = machine.run();
    if (text.starts_with('{') || text.starts_with('[')) return {.text = std::string(text), .is_cut_off = false};
    if (!is_pickle(text) || nested == kMostNested) return machine.json();
    pickle = text;
  }
}

}  // namespace ms::unpack
