// The content of a Chrome trace file, whatever program wrote it: events, and beside them the properties that many
// events share. chrome_reader.cpp turns it into the trace of a run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tracepp/read/chrome_tokens.h"
#include "tracepp/read/json_objects.h"
#include "tracepp/read/trace_names.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

// A (pid, tid) and its metadata.
struct ChromeThread {
  std::string pid, tid;  // as they are written
  std::string name;
  // From the args of its events; -1 if absent.
  int rank = -1, tp = -1, pp = -1;
  bool has_stream = false;  // some event has: it is of a device, if its category does not say otherwise
};

// The args of a collective. Texts are indices in ChromeFile::texts, kNone if absent.
struct ChromeComm {
  static constexpr std::uint32_t kNone = 0xffffffff;
  std::uint32_t collective = kNone, group = kNone, description = kNone, ranks = kNone, type = kNone;
  std::int64_t elements = -1;
  int source = -1, target = -1;
  bool operator==(const ChromeComm&) const = default;
};

// Whether events of a category say which call launched which work of the device: a number that both have. Until the
// reader is done it is their Event::step.
bool has_correlation(std::string_view category);
// Returns what events of a category of Kineto are.
Origin origin_of(std::string_view category);

// The properties that many events of the file share. Event::info is an index of these until the reader is done.
struct ChromeInfo {
  std::uint32_t name = 0, category = 0;  // texts: tokens, with quotes and escapes
  std::uint32_t thread = 0;
  std::int32_t comm = -1;
  // A text, kNone if absent: of an operator with a formula (op_shapes.h) its shapes, types and values, a line each; of
  // a copy its bytes.
  std::uint32_t shape = ChromeComm::kNone;
  std::int16_t chunk = -1;
  bool operator==(const ChromeInfo&) const = default;
};

struct ChromeFile {
  std::vector<Event> events;  // as they come; begin without the base
  std::vector<ChromeInfo> infos;
  std::vector<ChromeThread> threads;
  std::vector<ChromeComm> comms;
  std::map<std::string, std::string> processes, labels;  // names by pid as it is written
  TextIds texts;
  Problems problems;
  bool is_cut_off = false;
};

// Returns the number behind a key of an object that is skipped as a whole: parsing it takes several times as long.
std::string_view digits_behind(std::string_view object, std::string_view key);
// Returns ChromeInfo::shape of such args, of an operator or of a copy; empty: they have none.
std::string shape_of(std::string_view args, bool is_copy);
// Sets what an operator computes, or a copy moves, by its shape.
void add_work(EventInfo& made, std::string_view op, std::string_view shape, Strings& strings);
// Returns the names in "deviceProperties", and of these that of the device with this number. Of equal names the number
// does not matter. Empty: not known.
std::vector<std::string> device_names(std::string_view list);
std::string device_name(const std::vector<std::string>& names, std::string_view number);

// Returns how the events of an info are to be taken. One of no known category is of a device if its thread or process
// is.
EventRow row_of(const ChromeFile& file, const ChromeInfo& info);

// Both of tokens. Returns whether an annotation is a collective of a backend on the CPU. It lasts from this rank's
// arrival to its end.
bool is_host_collective(std::string_view name, std::string_view category);
// Returns whether an operator on the CPU computes: those of c10d only hand a collective to its backend.
bool is_host_operator(std::string_view name, EventRow row);

class ChromeEvents {
 public:
  explicit ChromeEvents(ChromeFile& file) : file_(file) {}

  // Reads the array of events that begins here. False: the text ended inside it. `bytes_left` of text, where that is
  // known, tells how many events may come.
  bool read(JsonText& text, std::int64_t bytes_left);
  // Closes what was begun and not ended.
  void finish();

 private:
  struct Fields;
  struct Args;
  struct Category {
    std::string token;
    std::uint32_t text = 0;
    bool is_plain = false, is_kernel = false, is_linked = false, is_op = false, is_copy = false;
  };
  static constexpr std::size_t kCategories = 256;
  struct InfoHash {
    std::size_t operator()(const ChromeInfo& info) const;
  };
  struct CommHash {
    std::size_t operator()(const ChromeComm& comm) const;
  };
  bool take(JsonObject& object);
  static bool read_args(JsonObject& object, Args& args);
  void read_args(const Args& args, Event& event, ChromeInfo& info, ChromeThread& thread);
  std::int32_t comm(const Args& args);
  bool is_plain(const Fields& fields);
  bool is_linked(const Fields& fields);
  // Returns whether the args of a plain event tell what it computes or copies.
  bool is_sized(const Fields& fields);
  std::uint32_t category(std::string_view token);  // in categories_
  std::uint32_t index(const ChromeInfo& info);
  void add(const Fields& fields);
  void add_metadata(const Fields& fields);
  void end(const Fields& fields);
  std::vector<std::uint32_t>& open_of(const Fields& fields, std::uint32_t thread);
  std::uint32_t thread(std::string_view pid, std::string_view tid);

  ChromeFile& file_;
  std::unordered_map<std::string, std::uint32_t> threads_;
  std::uint32_t last_thread_ = 0;
  std::vector<Category> categories_;
  std::uint32_t last_category_ = 0;
  std::unordered_map<ChromeInfo, std::uint32_t, InfoHash> infos_;
  std::vector<std::uint32_t> last_infos_;  // [name]
  std::unordered_map<ChromeComm, std::int32_t, CommHash> comms_;
  std::vector<std::vector<std::uint32_t>> open_;  // [thread]: events that have begun
  std::unordered_map<std::string, std::vector<std::uint32_t>> open_async_;
};

}  // namespace ms::tracepp
