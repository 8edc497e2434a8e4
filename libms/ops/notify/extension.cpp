// The entry point of libms_notify.so, by which ms-diag loads this module (health/commands/extension.h). Plain structs
// and std:: types of the same build cross it; each side has its own copy of the modules below, and of their log.
#include "health/commands/extension.h"

#include "base/version.h"
#include "notify/notify.h"

extern "C" const ms::health::NotifyExtension* ms_notify_extension() {
  static const ms::health::NotifyExtension kExtension{.version = ms::kVersion,
                                                      .notify = ms::notify::notify,
                                                      .page = ms::notify::notify_page,
                                                      .sample = ms::notify::sample_notify};
  return &kExtension;
}
