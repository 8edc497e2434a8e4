// Samples of images and text in a tar archive, as WebDataset and img2dataset write shards: members one after another
// whose paths are equal up to the first dot of the name are one sample. Its .jpg, .jpeg and .png are images, in their
// order, its .txt is the text. Where a sample has no .txt, its .json is the object that the text is a field of. Other
// members are passed over. ustar, GNU and pax.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::data {

// Whether a file that begins so is a tar archive.
bool is_tar(std::string_view head);

class TarSamples {
 public:
  // Receives a sample as a line of JSON, with its images in base64. Where its .json is no object, it is the line.
  using Sink = std::function<void(std::string_view line)>;

  // `path` is for messages; `text` and `image` are fields of the line. `text` is empty: each text is in a .json.
  TarSamples(std::string path, std::string text, std::string image);

  // Takes the next bytes of the archive. Error("data.input", user): a header is damaged, or a member of a sample is
  // larger than an image may be.
  void feed(std::string_view bytes, const Sink& sink);
  // The file ends here. The same error: the archive, which ends with a block of zeros, is cut off.
  void end(const Sink& sink);

 private:
  enum class Member : std::uint8_t { passed, image, text, json, long_name, pax };

  void begin_member();
  void begin_file(std::int64_t size_bytes);
  void end_member();
  void flush(const Sink& sink);
  [[noreturn]] void damaged(std::string_view what) const;

  std::string path_, text_field_, image_field_;
  std::string header_;                   // the block that is being read, 512 bytes
  std::int64_t left_ = 0, padding_ = 0;  // bytes of the member, and of what fills its last block
  Member member_ = Member::passed;
  std::string name_, bytes_;  // of the member
  std::string next_name_;     // of the next one, where it does not fit into its header
  bool ended_ = false;        // by a block of zeros

  std::string key_, next_key_;  // of the sample, and of what was read last
  std::vector<std::string> images_;
  std::string text_, json_;
  bool has_text_ = false, has_json_ = false;
};

}  // namespace ms::data
