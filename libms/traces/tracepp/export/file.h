// A file that an export writes piece by piece, gzip if its name ends in .gz. It has a temporary name until it is
// complete, so readers never see an incomplete file.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace ms::tracepp {

class ExportFile {
 public:
  // "-" is standard output; it and existing paths that are not files, such as /dev/null, are written directly. Throws
  // Error("file.create", user) if `path` cannot be written.
  explicit ExportFile(const std::string& path);
  ~ExportFile();  // removes the temporary file unless commit() was called
  ExportFile(const ExportFile&) = delete;
  ExportFile& operator=(const ExportFile&) = delete;

  // Appended to by exports, which call flush() now and then.
  std::string& text() { return text_; }
  // Writes the text if it is long. Throws Error("file.write").
  void flush() {
    if (text_.size() >= kTextBytes) write();
  }
  // Writes the rest, and gives the file its name.
  void commit();

 private:
  friend std::string gzip(std::string_view bytes);
  static constexpr std::size_t kTextBytes = 1 << 20;
  struct Gzip;
  void write();
  void write_bytes(std::string_view bytes);

  std::string path_, temporary_, text_;
  int fd_ = -1;
  std::unique_ptr<Gzip> gzip_;
};

// Returns the bytes as a gzip file holds them; at most 4 GiB.
std::string gzip(std::string_view bytes);

}  // namespace ms::tracepp
