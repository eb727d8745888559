/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlsym.S: dlsym and dlvsym. They ask vgpu_route for a hook and otherwise jump to the
 * real function with every argument and the caller's return address as they were:
 * RTLD_NEXT is relative to the caller, which the real function reads from there.
 *
 *   void *vgpu_route(void *handle, const char *name, const char *version, void *caller)
 *   1 means: there is no such name, and nobody else is to be asked.
 */
#if defined(__x86_64__)

	.text
	.macro lookup name, real, version
	.globl \name
	.type \name, @function
	.p2align 4
\name:
	.cfi_startproc
	endbr64
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	pushq %rsi
	.cfi_adjust_cfa_offset 8
	pushq %rdx
	.cfi_adjust_cfa_offset 8
	.if \version == 0
	xorl %edx, %edx
	.endif
	movq 24(%rsp), %rcx
	call vgpu_route
	popq %rdx
	.cfi_adjust_cfa_offset -8
	popq %rsi
	.cfi_adjust_cfa_offset -8
	popq %rdi
	.cfi_adjust_cfa_offset -8
	testq %rax, %rax
	jnz 1f
	movq \real(%rip), %rax
	testq %rax, %rax
	jz 1f
	jmp *%rax
1:	cmpq $1, %rax
	jne 2f
	xorl %eax, %eax
2:	ret
	.cfi_endproc
	.size \name, .-\name
	.endm

	lookup dlsym, vgpu_real_dlsym, 0
	lookup dlvsym, vgpu_real_dlvsym, 1

#elif defined(__aarch64__)

	.text
	.macro lookup name, real, version
	.globl \name
	.type \name, %function
	.p2align 4
\name:
	.cfi_startproc
	stp x29, x30, [sp, #-48]!
	.cfi_def_cfa_offset 48
	.cfi_offset 29, -48
	.cfi_offset 30, -40
	mov x29, sp
	stp x0, x1, [sp, #16]
	str x2, [sp, #32]
	.if \version == 0
	mov x2, #0
	.endif
	mov x3, x30
	bl vgpu_route
	mov x9, x0
	ldp x0, x1, [sp, #16]
	ldr x2, [sp, #32]
	ldp x29, x30, [sp], #48
	.cfi_def_cfa_offset 0
	cbnz x9, 1f
	adrp x9, \real
	ldr x9, [x9, #:lo12:\real]
	cbz x9, 1f
	br x9
1:	cmp x9, #1
	csel x0, xzr, x9, eq
	ret
	.cfi_endproc
	.size \name, .-\name
	.endm

	lookup dlsym, vgpu_real_dlsym, 0
	lookup dlvsym, vgpu_real_dlvsym, 1

#else
#error "dlsym.S knows x86-64 and aarch64"
#endif

	.section .note.GNU-stack, "", %progbits
