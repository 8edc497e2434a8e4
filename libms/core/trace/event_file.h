// TensorBoard's event files: curves of a run that TensorBoard shows while it grows. A file is TFRecords, little-endian:
// the length of an Event (8 bytes), the masked CRC32C of these 8 bytes, the Event, its masked CRC32C. An Event is a
// protobuf, of which this writes:
//
//   Event       1 wall_time (double), 2 step (int64), 3 file_version (string), 5 summary, 7 session_log
//   Summary     1 repeated Value {1 tag (string), 2 simple_value (float)}
//   SessionLog  1 status: START = 1, from which on TensorBoard drops points of this step and later in older files
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/append_file.h"

namespace ms::trace {

struct Scalar {
  std::string tag;  // "train/loss": TensorBoard groups by what stands before the first '/'
  double value = 0;
};

// The checksum of TFRecords before it is masked: CRC-32 of Castagnoli's polynomial.
std::uint32_t crc32c(std::string_view bytes);

class EventFile {
 public:
  // Makes `dir` and in it a file with a new name, which begins with the steps from `first_step` on: those that older
  // files in `dir` have of them are void, as a resumed run does them again. `wall_s`: the time now, since 1970.
  EventFile(const std::string& dir, std::int64_t first_step, double wall_s);
  void write(std::int64_t step, double wall_s, const std::vector<Scalar>& scalars);
  void close() { file_.close(); }
  const std::string& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace ms::trace
