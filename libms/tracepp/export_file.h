// A file that an export writes piece by piece, gzip where its name ends in .gz: under a temporary name until it is
// whole, so that nobody ever sees half of one.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace ms::tracepp {

class ExportFile {
 public:
  // "-" is standard output, as it comes; so is what exists and is no file, as /dev/null. Throws Error("file.create",
  // user) where `path` cannot be written.
  explicit ExportFile(const std::string& path);
  ~ExportFile();  // removes what was not committed
  ExportFile(const ExportFile&) = delete;
  ExportFile& operator=(const ExportFile&) = delete;

  // Appended to by exports, which call flush() now and then.
  std::string& text() { return text_; }
  // Writes the text away where it is long. Throws Error("file.write").
  void flush() {
    if (text_.size() >= kTextBytes) write();
  }
  // Writes the rest, and gives the file its name.
  void commit();

 private:
  static constexpr std::size_t kTextBytes = 1 << 20;
  struct Gzip;
  void write();
  void write_bytes(std::string_view bytes);

  std::string path_, temporary_, text_;
  int fd_ = -1;
  std::unique_ptr<Gzip> gzip_;
};

}  // namespace ms::tracepp
