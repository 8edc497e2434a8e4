// The texts that go into a vendor's ticket: one tar file, without secrets. Pure.
#pragma once

#include <string>
#include <string_view>

namespace ms::health {

// The text with "(removed)" for what looks like a secret: the value of an assignment, option or JSON member whose name
// speaks of a token, password, secret, key or credential; what follows "Bearer" or "Basic"; user and password in a URL;
// the path of a URL that is a webhook; words that begin as known tokens do; private keys. It looks at the form only, so
// a secret in plain prose stays.
std::string without_secrets(std::string_view text);

// A file of a tar archive (ustar), without secrets, mode 0600; the archive is the files, then tar_end().
std::string tar_file(const std::string& name, std::string_view text, double wall_s);
std::string tar_end();

}  // namespace ms::health
