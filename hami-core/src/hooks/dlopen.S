/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlopen.S: dlopen and dlmopen. They ask open.c how to go on and jump to the real function
 * with the caller's return address as it was: the C library searches by the caller's
 * RUNPATH and loads into the caller's namespace.
 *
 *   int vgpu_open_mode(const char *file, int mode, void *caller)
 *   void vgpu_open_in(struct {mode, file, space} *, void *caller)
 */
#if defined(__x86_64__)

	.text
	.globl dlopen
	.type dlopen, @function
	.p2align 4
dlopen:
	.cfi_startproc
	endbr64
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	movq 8(%rsp), %rdx
	call vgpu_open_mode
	popq %rdi
	.cfi_adjust_cfa_offset -8
	movl %eax, %esi
	movq vgpu_real_dlopen(%rip), %rax
	testq %rax, %rax
	jz 1f
	jmp *%rax
1:	ret
	.cfi_endproc
	.size dlopen, .-dlopen

	.globl dlmopen
	.type dlmopen, @function
	.p2align 4
dlmopen:
	.cfi_startproc
	endbr64
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	pushq %rsi
	.cfi_adjust_cfa_offset 8
	pushq %rdx
	.cfi_adjust_cfa_offset 8
	movq %rsp, %rdi
	movq 24(%rsp), %rsi
	call vgpu_open_in
	popq %rdx
	.cfi_adjust_cfa_offset -8
	popq %rsi
	.cfi_adjust_cfa_offset -8
	popq %rdi
	.cfi_adjust_cfa_offset -8
	movq vgpu_real_dlmopen(%rip), %rax
	testq %rax, %rax
	jz 1f
	jmp *%rax
1:	ret
	.cfi_endproc
	.size dlmopen, .-dlmopen

#elif defined(__aarch64__)

	.text
	.globl dlopen
	.type dlopen, %function
	.p2align 4
dlopen:
	.cfi_startproc
	stp x29, x30, [sp, #-32]!
	.cfi_def_cfa_offset 32
	.cfi_offset 29, -32
	.cfi_offset 30, -24
	mov x29, sp
	str x0, [sp, #16]
	mov x2, x30
	bl vgpu_open_mode
	mov w1, w0
	ldr x0, [sp, #16]
	ldp x29, x30, [sp], #32
	.cfi_def_cfa_offset 0
	adrp x9, vgpu_real_dlopen
	ldr x9, [x9, #:lo12:vgpu_real_dlopen]
	cbz x9, 1f
	br x9
1:	mov x0, #0
	ret
	.cfi_endproc
	.size dlopen, .-dlopen

	.globl dlmopen
	.type dlmopen, %function
	.p2align 4
dlmopen:
	.cfi_startproc
	stp x29, x30, [sp, #-48]!
	.cfi_def_cfa_offset 48
	.cfi_offset 29, -48
	.cfi_offset 30, -40
	mov x29, sp
	stp x2, x1, [sp, #16]
	str x0, [sp, #32]
	add x0, sp, #16
	mov x1, x30
	bl vgpu_open_in
	ldp x2, x1, [sp, #16]
	ldr x0, [sp, #32]
	ldp x29, x30, [sp], #48
	.cfi_def_cfa_offset 0
	adrp x9, vgpu_real_dlmopen
	ldr x9, [x9, #:lo12:vgpu_real_dlmopen]
	cbz x9, 1f
	br x9
1:	mov x0, #0
	ret
	.cfi_endproc
	.size dlmopen, .-dlmopen

#else
#error "dlopen.S knows x86-64 and aarch64"
#endif

	.section .note.GNU-stack, "", %progbits
