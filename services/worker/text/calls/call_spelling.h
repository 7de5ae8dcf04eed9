// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "services/worker/text/calls/call_form.h"

namespace continuo::text {

// The form with the white space that the chat template's own call has, where that is this form's
// but for white space. `between` stays: one call does not show it.
CallForm SpeltAsShown(CallForm form, const ResponseFormat& format);

}  // namespace continuo::text
