package glassflow

import java.io.{InterruptedIOException, IOException}
import java.time.{Duration, ZoneOffset}
import java.util.{Map => JavaMap, UUID}
import java.util.concurrent.ConcurrentHashMap

import com.azure.core.credential.{AccessToken, TokenCredential, TokenRequestContext}
import com.azure.core.http.jdk.httpclient.JdkHttpClientBuilder
import com.azure.core.util.{BinaryData, Context}
import com.azure.storage.blob.{BlobContainerClient, BlobContainerClientBuilder}
import com.azure.storage.blob.models.{BlobErrorCode, BlobRequestConditions, BlobStorageException}
import com.azure.storage.blob.options.BlobParallelUploadOptions
import com.azure.storage.common.StorageSharedKeyCredential
import com.azure.storage.common.policy.{RequestRetryOptions, RetryPolicyType}
import org.apache.commons.io.output.DeferredFileOutputStream
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}
import org.apache.hadoop.fs.azurebfs.AbfsConfiguration
import reactor.core.publisher.Mono

/** Spark's checkpoint files in a container of Azure's storage: read by Hadoop's ABFS, written by Azure's own client.
  *
  * ABFS shows a file before its content. The client writes a blob in one step, Put Blob, or the list of the blocks of a
  * large one; the condition is `If-None-Match: *`. An account with a hierarchical namespace has this interface, too.
  */
class AzureFiles(root: Path, settings: Configuration) extends UploadedFiles(root, settings) {
  private val container = AzureFiles.container(root, settings)

  override protected def upload(content: DeferredFileOutputStream, path: Path, overwrite: Boolean): Unit = {
    val data = if (content.isInMemory) BinaryData.fromBytes(content.getData) else BinaryData.fromFile(content.getPath)
    // By which the blob is recognized: the answer may be lost, and the client repeats the request, which then finds it.
    val writer = UUID.randomUUID().toString
    val options = new BlobParallelUploadOptions(data).setMetadata(JavaMap.of(AzureFiles.WRITER, writer))
    if (!overwrite) options.setRequestConditions(new BlobRequestConditions().setIfNoneMatch("*"))
    val blob = container.getBlobClient(path.toUri.getPath.stripPrefix("/"))
    try blob.uploadWithResponse(options, AzureFiles.PATIENCE, Context.NONE)
    catch {
      case error: BlobStorageException if !overwrite && AzureFiles.isConflict(error) =>
        if (blob.getProperties.getMetadata.get(AzureFiles.WRITER) != writer)
          throw new FileAlreadyExistsException(s"$path: was written by another query").initCause(error)
      // A query that is stopped.
      case error: RuntimeException if ObjectStoreFiles.says(error, "InterruptedException") =>
        throw new InterruptedIOException(s"$path: ${error.getMessage}").initCause(error)
      case error: RuntimeException => throw new IOException(s"$path: ${error.getMessage}", error)
    }
  }
}

private object AzureFiles {
  // The setting of the URL that the account's containers are below.
  private val SERVER = "glassflow.azure.server"
  // The setting of the account's key; without it, tokens are those of ABFS.
  private val KEY = "fs.azure.account.key"
  private val WRITER = "glassflow_writer"
  // Of a server that does not answer: pauses of 1, 3, 7, 15, 31 and 32 s between the requests for one file.
  private val REPETITIONS = new RequestRetryOptions(RetryPolicyType.EXPONENTIAL, 7, 60, 1000L, 32000L, null)
  // For one file, with all repetitions.
  private val PATIENCE = Duration.ofMinutes(2)
  private val clients = new ConcurrentHashMap[(String, String, String), BlobContainerClient]

  private def isConflict(error: BlobStorageException): Boolean =
    error.getErrorCode == BlobErrorCode.BLOB_ALREADY_EXISTS || error.getErrorCode == BlobErrorCode.CONDITION_NOT_MET

  /** The client of a container, one for all the partitions of a state: each has threads of its own. */
  private def container(root: Path, settings: Configuration): BlobContainerClient = {
    val (server, name) = (settings.get(SERVER), root.toUri.getUserInfo)
    clients.computeIfAbsent(
      (server, name, settings.get(KEY, "")),
      { case (_, _, key) =>
        val builder = new BlobContainerClientBuilder()
          .endpoint(server)
          .containerName(name)
          .httpClient(new JdkHttpClientBuilder().build())
          .retryOptions(REPETITIONS)
        val account = root.toUri.getHost.takeWhile(_ != '.')
        if (key.isEmpty) builder.credential(new Tokens(new AbfsConfiguration(settings, root.toUri.getHost)))
        else builder.credential(new StorageSharedKeyCredential(account, key))
        builder.buildClient()
      }
    )
  }

  /** The tokens of an identity, which ABFS fetches. */
  private class Tokens(abfs: AbfsConfiguration) extends TokenCredential {
    private lazy val provider = abfs.getTokenProvider

    override def getToken(request: TokenRequestContext): Mono[AccessToken] =
      Mono.fromCallable { () =>
        val token = provider.getToken
        new AccessToken(token.getAccessToken, token.getExpiry.toInstant.atOffset(ZoneOffset.UTC))
      }
  }
}
