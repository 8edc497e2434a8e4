// Reads what `nsys export` of Nsight Systems writes, as SQLite or as JSON lines, as if Kineto had written it: kernels,
// copies and calls of the CUDA runtime with the same categories and correlations, NVTX ranges as annotations, those of
// PyTorch's emit_nvtx as operators. NVTX ranges such as "step 5" or "iteration 5" are the steps.
//
// Each process with work on a device is a rank. Its number is in the file's name ("rank3.sqlite") if that is one
// process; else nothing tells it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tracepp/read/chrome_reader.h"

namespace ms::tracepp {

// An event of a report, whichever export has it.
struct NsysEvent {
  enum class What : std::uint8_t { kernel, copy, set, call, range };
  What what = What::kernel;
  std::int64_t begin_ns = 0, end_ns = 0;  // since the report's begin
  std::int64_t thread = 0;  // process and thread, as exports write both in one number; of a device: process
  std::int64_t name = 0;    // in NsysReport::strings
  std::int64_t correlation = -1;
  std::int64_t device = 0, stream = 0;
};

struct NsysReport {
  std::vector<NsysEvent> events;
  std::unordered_map<std::int64_t, std::string> strings;
  std::int64_t begin_ns = 0;  // of the report, since 1970; 0: not known
  std::string host;
  Problems problems;
  // Returns the name of a text that has no number, and one below 0 as its number.
  std::int64_t named(const std::string& text);

 private:
  std::unordered_map<std::string, std::int64_t> own_;
};

// "Memcpy HtoD (Pageable -> Device)", as Kineto names copies, from Nsight's numbers of their kind and of both memories.
std::string nsys_copy_name(std::int64_t kind, std::int64_t from, std::int64_t to);

bool is_nsys_json(std::string_view beginning, bool is_named);
bool is_sqlite(std::string_view beginning, bool is_named);

class NsysReader : public ChromeReader {
 public:
  using ChromeReader::ChromeReader;
  std::int64_t read(TextInput& input) override;  // JSON lines

 protected:
  void add(NsysReport& report, const std::string& path);
};

class NsysSqliteReader final : public NsysReader {
 public:
  using NsysReader::NsysReader;
  // Throws Error("trace.sqlite", user) if this build has no SQLite, or the file is not a database.
  std::int64_t read(TextInput& input) override;
};

}  // namespace ms::tracepp
