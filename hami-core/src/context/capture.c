/* SPDX-License-Identifier: Apache-2.0 */
#include "context/capture.h"

#include "driver/resolve.h"

/* The mode before; -1: nothing was changed. */
static int exchange_mode(int mode)
{
	fn_cuThreadExchangeStreamCaptureMode call = ORIGINAL(cuThreadExchangeStreamCaptureMode);
	return call && mode >= 0 && call(&mode) == CUDA_SUCCESS ? mode : -1;
}

int capture_relax(void)
{
	return exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
}

void capture_restore(int before)
{
	exchange_mode(before);
}

int capture_is_active(CUstream stream)
{
	int status = 0;
	fn_cuStreamIsCapturing get = ORIGINAL(cuStreamIsCapturing);
	return get && (get(stream, &status) != CUDA_SUCCESS || status);
}
